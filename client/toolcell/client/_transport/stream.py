"""One Attach stream: messages up, one at a time, and a loop that reads.

grpc.aio ends a stream on which two writes overlap. So a message is written where it is sent if no write is under way,
and else waits in the queue, which the write under way empties before it ends. Acknowledgements ride on whatever goes up
next; where nothing does, one goes up by itself, after a while or after so many bytes, never for each event.

The stream knows nothing of calls. It outlives nothing: after a drop the session makes another one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeAlias

import grpc

from toolcell.client.errors import REMEDIES, Refusal, refusal_of_rpc
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
    REMEDIES["deadline_exceeded"],
)
NO_WELCOME = Refusal(
    grpc.StatusCode.INTERNAL, "rude", "The daemon did not begin with its Welcome; is it a daemon of ours?"
)


class Stream:
    """One Attach stream, from its Open to its end.

    The mutable state: `_writing` (a write is under way, or the stream has ended) and `_writer`, the task of the last write.
    """

    __slots__ = (
        "_acknowledge_timer",
        "_inbox",
        "_link",
        "_outbox",
        "_rpc",
        "_unacknowledged_bytes",
        "_writer",
        "_writing",
    )

    def __init__(self, link: Channel, inbox: ReceiveBuffer) -> None:
        self._link = link
        self._inbox = inbox
        self._outbox = SendQueue()
        self._acknowledge_timer: asyncio.TimerHandle | None = None
        self._unacknowledged_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._writing = False

    def send(self, messages: pb.AttachRequest | Iterator[pb.AttachRequest]) -> None:
        """Let a message go up, or all of a source in turn with others; returns at once."""
        self._outbox.put(messages)
        if not self._writing:
            self._writing = True
            self._writer = _begin(self._write())

    async def run(
        self,
        opening: pb.Open,
        welcome: Callable[[pb.Welcome], None],
        handle_event: Callable[[pb.Event], None],
    ) -> Refusal | None:
        """Open, then hand each event to `handle_event` until the stream ends; says why it did, None for in peace."""
        self._rpc: _Rpc = ToolCellStub(self._link.channel).Attach(metadata=self._link.metadata)
        self.send(pb.AttachRequest(open=opening))
        try:
            return await self._read(welcome, handle_event)
        finally:
            self._writing = True  # what is sent from now on stays in the queue
            self._rpc.cancel()
            if self._acknowledge_timer is not None:
                self._acknowledge_timer.cancel()
            if self._writer is not None:
                # A write to a stream that has ended fails at once. Cancelled, it would leave its end to come later, perhaps
                # to a loop that is closed by then, which gRPC reports as an error of the next loop of the process.
                if self._rpc.cancelled():
                    self._writer.cancel()
                await asyncio.wait({self._writer})
                if not self._writer.cancelled():
                    self._writer.result()  # raises a failure of ours

    async def _read(
        self, welcome: Callable[[pb.Welcome], None], handle_event: Callable[[pb.Event], None]
    ) -> Refusal | None:
        messages = self._rpc.__aiter__()
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
            self.send(pb.AttachRequest())  # its number is filled in when it goes

    async def _write(self) -> None:
        """Write what is queued, until nothing is."""
        try:
            while (message := self._outbox.take()) is not None:
                message.acknowledged = self._inbox.acknowledge()
                await self._rpc.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended, and its reader learns why; nothing more is written
        except BaseException:
            self._rpc.cancel()  # the reader ends too
            raise
        self._writing = False


def _begin(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Start a task; up to its first wait it runs here and now, where Python can do that."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
