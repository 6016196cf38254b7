"""One Attach stream: messages up, and a loop that reads.

A message goes up where it is sent, unless what went before waits for the daemon; then it waits in the queue.
Acknowledgements ride on whatever goes up next; where nothing does, one goes up by itself, after a while or after so many
bytes, never for each event. The beginnings of calls wait for what comes after them, so that a session with many calls that
wait does not send a message for each.

The stream knows nothing of calls. It outlives nothing: after a drop the session makes another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from toolcell.client._grpc.access import WELCOME_SECONDS
from toolcell.client._grpc.methods import ToolCellMethods
from toolcell.client._grpc.rpc import Rpc, RpcLink
from toolcell.client.errors import NO_ANSWER, Code, Refusal, refusal_of_end
from toolcell_proto.v1 import toolcell_pb2 as pb

from .receive_buffer import ReceiveBuffer
from .send_queue import SendQueue

ACKNOWLEDGE_AFTER_SECONDS = 0.5  # how long the daemon keeps the last outcome for nothing
ACKNOWLEDGE_AFTER_BYTES = 256 * 1024  # a quarter of what the daemon retains

NO_WELCOME = Refusal(
    Code.INTERNAL, "rude", "The daemon did not begin with its Welcome; is it a daemon of ours?"
)


class Stream:
    """One Attach stream, from its Open to its end."""

    __slots__ = (
        "_acknowledge_timer",
        "_inbox",
        "_link",
        "_outbox",
        "_refusal",
        "_rpc",
        "_turn",
        "_unacknowledged_bytes",
    )

    def __init__(self, link: RpcLink, inbox: ReceiveBuffer) -> None:
        self._link = link
        self._inbox = inbox
        self._outbox = SendQueue()
        self._rpc: Rpc
        self._refusal: Refusal | None = None  # ours
        self._turn: asyncio.Handle | None = None  # the next one to write in
        self._acknowledge_timer: asyncio.TimerHandle | None = None
        self._unacknowledged_bytes = 0

    @property
    def ended(self) -> bool:
        """Whether nothing goes up any more."""
        return self._rpc.ended.done()

    def send(self, messages: pb.AttachRequest | Iterator[pb.AttachRequest]) -> None:
        """Let a message go up, or all of a source in turn with others; returns at once."""
        rpc, outbox = self._rpc, self._outbox
        if isinstance(messages, pb.AttachRequest) and not (outbox.turns or rpc.blocked or rpc.ended.done()):
            try:
                self._send(messages)
            except Exception as error:  # noqa: BLE001  # raised by `run`
                rpc.fail(error)
            return
        outbox.put(messages)
        if self._turn is None:
            self._write()

    async def run(
        self,
        opening: pb.Open,
        welcome: Callable[[pb.Welcome], None],
        handle_event: Callable[[pb.Event], None],
    ) -> Refusal | None:
        """Open, then hand each event to `handle_event` until the stream ends; says why it did, None for in peace."""

        def receive_first(data: bytes) -> None:
            message = pb.AttachResponse.FromString(data)
            if not message.events or message.events[0].WhichOneof("event") != "welcome":
                self._give_up(NO_WELCOME)
                return
            timer.cancel()
            self._rpc.on_message = receive
            welcome(message.events[0].welcome)
            handle(message.events[1:], len(data))

        def receive(data: bytes) -> None:
            handle(pb.AttachResponse.FromString(data).events[:], len(data))

        def handle(events: Sequence[pb.Event], size_bytes: int) -> None:  # a list, which is iterated quickly
            for event in events:
                handle_event(event)
            if len(events) > 1:
                self._link.gather()  # tasks that go on together send together
            self._received(size_bytes)

        timer = asyncio.get_running_loop().call_later(WELCOME_SECONDS, self._give_up, NO_ANSWER)
        self._rpc = self._link.begin(ToolCellMethods.Attach.path, receive_first)
        self._rpc.on_writable = self._write
        self.send(pb.AttachRequest(open=opening))
        try:
            status = await self._rpc.ended
        finally:
            timer.cancel()
            if self._acknowledge_timer is not None:
                self._acknowledge_timer.cancel()
            self._rpc.cancel()
        return self._refusal or (refusal_of_end(status) if status.code else None)

    def _give_up(self, why: Refusal) -> None:
        self._refusal = why
        self._rpc.cancel()

    def _received(self, size_bytes: int) -> None:
        self._unacknowledged_bytes += size_bytes
        if self._unacknowledged_bytes >= ACKNOWLEDGE_AFTER_BYTES:
            self._acknowledge()
        elif self._acknowledge_timer is None and self._inbox.more_than_beginnings:
            loop = asyncio.get_running_loop()
            self._acknowledge_timer = loop.call_later(ACKNOWLEDGE_AFTER_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._acknowledge_timer = None
        if self._inbox.more_than_beginnings:
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self._inbox.owes:
            self.send(pb.AttachRequest())  # its number is filled in when it goes

    def _write(self) -> None:
        """Send what is queued, as far as the daemon takes it. Of long requests one message goes in each turn of the loop."""
        rpc, outbox = self._rpc, self._outbox
        self._turn = None
        if rpc.ended.done():
            return  # what is sent now stays in the queue
        try:
            while outbox.turns and not rpc.blocked and (message := outbox.take()) is not None:
                self._send(message)
                if outbox.has_sources:
                    self._turn = asyncio.get_running_loop().call_soon(self._write)
                    return
        except Exception as error:  # noqa: BLE001  # raised by `run`
            rpc.fail(error)

    def _send(self, message: pb.AttachRequest) -> None:
        message.acknowledged = self._inbox.acknowledge()
        self._unacknowledged_bytes = 0
        self._rpc.send(message.SerializeToString())
