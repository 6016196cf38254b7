"""A call: one request to run one tool, on its way from the moment it is made.

It is a future with manners. A plain `asyncio.Future` would not do: cancelling one waiter would cancel it for all,
and the cancellation would be delivered at once, while the tool goes on. Here the cancellation of whoever waits is
the abort, and it is delivered when the tool has stopped, so that `asyncio.timeout()` and task groups tell the truth.

`Call` is what the caller holds; `CallState` is the same call as its session knows it, with what it takes to send it
again after the line has dropped. No task belongs to either: the session's reader delivers and ends, and whoever
waits is woken by a future of its own. All of it lives on the session's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Protocol

from toolcell.client._transport.stream import Stream
from toolcell.client._transport.tracing import CallSpan
from toolcell_proto.v1 import toolcell_pb2 as pb

from .events import Event, EventBuffer
from .outcome import Kind, Outcome

__all__ = ["Call", "CallState"]

PART_BYTES_MAX = 48 * 1024  # the contract's bound for a chunk
ANSWERS_KEPT_MAX = 64  # to be sent again after a drop; more questions than a tool has open at once
CANCELLED = "whoever waited for it was cancelled"


class CallTransport(Protocol):
    """What carries flights: the session's attachment."""

    def send(self, message: pb.AttachRequest, /) -> None:
        """Say something about a call, if there is somebody to hear it."""
        ...

    def land(self, flight: CallState, /) -> None:
        """Forget a flight that has ended."""
        ...


class CallState:
    """A call under way, as its session knows it.

    The state is here and nowhere else: `outcome` (ended), `abort_reason` (asked to stop), `sent` (the daemon may have
    some of it), `whole` (may have all of it), `accepted` (is known to have it), and the answers given.
    """

    __slots__ = (
        "_answers",
        "_arguments",
        "_buffer",
        "_reader",
        "_request",
        "_traced",
        "_transport",
        "_waiters",
        "abort_reason",
        "accepted",
        "asks",
        "call",
        "outcome",
        "sent",
        "whole",
    )

    def __init__(
        self, request: pb.Call, arguments: bytes, transport: CallTransport, traced: CallSpan | None = None
    ) -> None:
        if len(arguments) > PART_BYTES_MAX:
            request.arguments = arguments[:PART_BYTES_MAX]
            request.arguments_bytes = len(arguments)
        else:
            request.arguments = arguments
        self._request = request
        self._arguments = arguments
        self._transport = transport
        self._traced = traced
        self._answers: dict[int, pb.AttachRequest] = {}
        self._buffer: EventBuffer | None = None
        self._reader: asyncio.Future[None] | None = None  # who iterates, and has read everything
        self._waiters: list[asyncio.Future[None]] = []  # who awaits
        self.asks: dict[int, asyncio.Task[None]] = {}
        self.abort_reason: str | None = None
        self.accepted = False
        self.sent = False
        self.whole = len(arguments) <= PART_BYTES_MAX
        self.outcome: Outcome | None = None
        self.call = Call(request.call_id, request.tool, self)

    def same_request(self, tool: str, arguments: bytes) -> bool:
        """Whether a request under the same id is the same call."""
        return self.call.tool == tool and (self._arguments == arguments or self.accepted)

    def launch(self, stream: Stream) -> None:
        """Send what starts the call, or rejoins it."""
        self.sent = True
        if len(self._arguments) <= PART_BYTES_MAX:
            stream.send(pb.AttachRequest(call=self._request))
        else:
            self.whole = False
            stream.send(self._parts())

    def _parts(self) -> Iterator[pb.AttachRequest]:
        """The request and the rest of its arguments; no more of it once the call has ended."""
        if self.outcome is None:
            yield pb.AttachRequest(call=self._request)
        size = len(self._arguments)
        for start in range(PART_BYTES_MAX, size, PART_BYTES_MAX):
            if self.outcome is not None:
                return
            end = start + PART_BYTES_MAX
            self.whole = end >= size
            part = pb.Chunk(call_id=self.call.id, data=self._arguments[start:end], last=self.whole)
            yield pb.AttachRequest(chunk=part)

    def repeats(self) -> Iterator[pb.AttachRequest]:
        """What was said about the call beside its request, for a stream that has not heard it."""
        yield from self._answers.values()
        if self.abort_reason is not None:
            yield pb.AttachRequest(abort=pb.Abort(call_id=self.call.id, reason=self.abort_reason))

    def abort(self, reason: str) -> None:
        """Say once that the call is to stop. One whose arguments have not all gone up has not begun, and ends here."""
        if self.outcome is None and self.abort_reason is None:
            self.abort_reason = reason
            self._transport.send(pb.AttachRequest(abort=pb.Abort(call_id=self.call.id, reason=reason)))
            if not self.whole:
                self.end(Outcome(Kind.aborted, "client", f"{reason or 'by the client'}, before it was sent"))

    def was_asked(self, ask_id: int) -> bool:
        """Whether the question or request is known, be it answered or not."""
        return ask_id in self.asks or ask_id in self._answers

    def answer(self, ask_id: int, answer: pb.AttachRequest) -> None:
        """Answer a question or a request, and remember it in case the line drops."""
        self.asks.pop(ask_id, None)
        if self.outcome is None:
            self._answers[ask_id] = answer
            if len(self._answers) > ANSWERS_KEPT_MAX:
                del self._answers[next(iter(self._answers))]
            self._transport.send(answer)

    def deliver(self, event: Event, size_bytes: int) -> None:
        """Keep an event for whoever iterates."""
        if self._buffer is None:
            self._buffer = EventBuffer()
        self._buffer.put(event, size_bytes)
        self._wake_reader()

    def end(self, outcome: Outcome) -> None:
        """End the call; the first ending is the only one."""
        if self.outcome is None:
            self.outcome = outcome
            if self._traced is not None:
                self._traced.end(outcome)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._wake_reader()
            for ask in self.asks.values():
                ask.cancel()
            self._transport.land(self)

    async def ended(self) -> Outcome:
        """The outcome; being cancelled is the abort."""
        try:
            await self._end()
        except asyncio.CancelledError:
            await self._stop()
            raise
        assert self.outcome is not None
        return self.outcome

    async def events(self) -> AsyncIterator[Event]:
        """The events that nobody has read, as they come; being cancelled is the abort."""
        while True:
            while self._buffer is not None and (event := self._buffer.take()) is not None:
                yield event
            if self.outcome is not None:
                return
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            except asyncio.CancelledError:
                await self._stop()
                raise

    async def _stop(self) -> None:
        self.abort(CANCELLED)
        await self._end()

    async def _end(self) -> None:
        if self.outcome is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Call:
    """One request to run one tool; await it for the Outcome, iterate over it for what happens until then.

    Cancelling whoever does either aborts the call, and the cancellation is delivered when the tool has stopped;
    a second cancellation leaves at once.
    """

    __slots__ = ("_flight", "_iterated", "id", "tool")

    def __init__(self, call_id: str, tool: str, flight: CallState) -> None:
        self.id = call_id
        self.tool = tool
        self._flight = flight
        self._iterated = False

    def __repr__(self) -> str:
        state = (
            self.outcome.kind
            if self.outcome
            else "aborting"
            if self._flight.abort_reason is not None
            else "open"
        )
        return f"<Call {self.id} {self.tool} {state}>"

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None until then."""
        return self._flight.outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self._flight.ended().__await__()

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._iterated:
            raise RuntimeError(f"{self!r} has been iterated over, and an event that was read is gone")
        self._iterated = True
        return self._flight.events()

    def abort(self, reason: str = "") -> None:
        """Ask the call to stop; it still ends with its one Outcome. Returns at once, harmless twice."""
        self._flight.abort(reason)
