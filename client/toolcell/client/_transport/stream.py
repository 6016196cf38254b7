"""One Attach stream: one task that writes, one loop that reads.

grpc.aio ends a stream on which two writes overlap, so everything that goes up waits for its turn in the outbox and
one task takes it from there. Acknowledgements ride on whatever goes up next; where nothing does, one goes up by
itself, after a while or after so many bytes, never for each event.

The stream knows nothing of calls. It outlives nothing: after a drop the session makes another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeAlias

import grpc

from toolcell.client.errors import Refusal, refusal_of_rpc
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

from .channel import Channel
from .receive_buffer import ReceiveBuffer
from .send_queue import SendQueue

__all__ = ["Stream"]

_Rpc: TypeAlias = "grpc.aio.StreamStreamCall[pb.AttachRequest, pb.AttachResponse]"

ACKNOWLEDGE_AFTER_SECONDS = 0.5  # how long the daemon keeps the last outcome for nothing
ACKNOWLEDGE_AFTER_BYTES = 256 * 1024  # a quarter of what the daemon retains
WELCOME_SECONDS = 15.0  # a daemon that is alive answers at once; one that swaps may need seconds

NO_ANSWER = Refusal(
    grpc.StatusCode.DEADLINE_EXCEEDED,
    "unreachable",
    f"The daemon took the connection and did not answer within {WELCOME_SECONDS:g} s.",
)
NO_WELCOME = Refusal(
    grpc.StatusCode.INTERNAL, "rude", "The daemon did not begin with its Welcome; is it a daemon of ours?"
)


class Stream:
    """One Attach stream, from its Open to its end."""

    __slots__ = ("_acknowledge_timer", "_inbox", "_link", "_outbox", "_unacknowledged_bytes")

    def __init__(self, link: Channel, inbox: ReceiveBuffer) -> None:
        self._link = link
        self._inbox = inbox
        self._outbox = SendQueue()
        self._acknowledge_timer: asyncio.TimerHandle | None = None
        self._unacknowledged_bytes = 0

    def send(self, messages: pb.AttachRequest | Iterator[pb.AttachRequest]) -> None:
        """Let a message go up, or all of a source in turn with others; returns at once."""
        self._outbox.put(messages)

    async def run(
        self,
        opening: pb.Open,
        welcome: Callable[[pb.Welcome], None],
        handle_event: Callable[[pb.Event], None],
    ) -> Refusal | None:
        """Open, then hand each event to `handle_event` until the stream ends; says why it did, None for in peace."""
        rpc = ToolCellStub(self._link.channel).Attach(metadata=self._link.metadata)
        self._outbox.put(pb.AttachRequest(open=opening))
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(rpc))
                try:
                    return await self._read(rpc, welcome, handle_event)
                finally:
                    writer.cancel()
        finally:
            rpc.cancel()
            if self._acknowledge_timer is not None:
                self._acknowledge_timer.cancel()

    async def _read(
        self, rpc: _Rpc, welcome: Callable[[pb.Welcome], None], handle_event: Callable[[pb.Event], None]
    ) -> Refusal | None:
        messages = rpc.__aiter__()
        try:
            async with asyncio.timeout(WELCOME_SECONDS):
                first = await anext(messages, None)
            if first is None or not first.events or first.events[0].WhichOneof("event") != "welcome":
                return NO_WELCOME
            welcome(first.events[0].welcome)
            del first.events[0]
            self._handle(first, handle_event)
            async for message in messages:
                self._handle(message, handle_event)
        except TimeoutError:
            return NO_ANSWER
        except grpc.aio.AioRpcError as error:
            return refusal_of_rpc(error)
        return None

    def _handle(self, message: pb.AttachResponse, handle_event: Callable[[pb.Event], None]) -> None:
        for event in message.events:
            handle_event(event)
        self._unacknowledged_bytes += message.ByteSize()
        if self._unacknowledged_bytes >= ACKNOWLEDGE_AFTER_BYTES:
            self._acknowledge()
        elif self._acknowledge_timer is None:
            loop = asyncio.get_running_loop()
            self._acknowledge_timer = loop.call_later(ACKNOWLEDGE_AFTER_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._acknowledge_timer is not None:
            self._acknowledge_timer.cancel()
            self._acknowledge_timer = None
        self._unacknowledged_bytes = 0
        if self._inbox.owes:
            self._outbox.put(pb.AttachRequest())  # its number is filled in when it goes

    async def _write(self, rpc: _Rpc) -> None:
        while True:
            message = await self._outbox.take()
            message.acknowledged = self._inbox.acknowledge()
            try:
                await rpc.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the stream has ended; its reader learns why
