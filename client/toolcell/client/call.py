"""A call: one request to run one tool, started when the object is created.

A plain `asyncio.Future` would not do: cancelling one waiter would cancel it for all, and the cancellation would be
delivered at once, while the tool goes on. Here cancelling a waiter aborts the call, and the cancellation is delivered
when the tool has stopped, so that `asyncio.timeout()` and task groups end only after the tool.

A Call is a coroutine to asyncio, too, so that `create_task`, task groups and `gather` take it. Each task that drives it has
a wait of its own, because a real coroutine can be awaited once and a call as often as one likes. It was sent when it was
made, so a task that is cancelled before its first step aborts it all the same.

`Call` is the public object; `CallState` is the session's state of the same call, with everything that is needed to send
it again after a lost connection. Neither has a task: the session's reader delivers events and the outcome, and each
waiter has a future. Everything runs on the session's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Protocol

from toolcell.client._transport.stream import Stream
from toolcell.client._transport.tracing import CallSpan
from toolcell_proto.v1 import toolcell_pb2 as pb

from .events import Event, EventBuffer
from .outcome import Kind, Outcome

PART_BYTES_MAX = 48 * 1024  # the contract's bound for a chunk
ANSWERS_KEPT_MAX = 64  # to send again after a lost connection; more questions than a tool has open at once
CANCELLED = "the task that waited for it was cancelled"


class CallTransport(Protocol):
    """The connection that sends the messages of calls."""

    def send(self, message: pb.AttachRequest, /) -> None:
        """Send a message about a call; drop it if there is no connection."""
        ...

    def remove(self, state: CallState, /) -> None:
        """Remove a call that has ended."""
        ...


class CallState:
    """The session's state of a call.

    The mutable state: `outcome` (ended), `abort_reason` (abort requested), `sent` (the daemon may have part of the
    request), `whole` (it may have all of it), `accepted` (it confirmed the call), and the answers given.
    What most calls do without is a default of the class until it is needed. `call` is there until the call has ended:
    the two objects hold each other, and a result would wait for the garbage collector with them.
    """

    call: Call

    outcome: Outcome | None = None
    abort_reason: str | None = None
    accepted = False
    sent = False
    whole = True
    watch: asyncio.TimerHandle | None = None  # ends the call where the daemon no longer does
    _failure: Exception | None = None  # of `on_event`
    _buffer: EventBuffer | None = None
    _listener: tuple[Callable[[Event], object], Callable[[Outcome], object]] | None = None
    _reader: asyncio.Future[None] | None = None  # the iterator that waits for an event
    _waiters: tuple[asyncio.Future[None], ...] = ()  # the tasks that wait for the outcome

    def __init__(
        self,
        request: pb.AttachRequest,
        arguments: bytes,
        transport: CallTransport,
        traced: CallSpan | None = None,
    ) -> None:
        message = request.call
        if len(arguments) > PART_BYTES_MAX:
            message.arguments = arguments[:PART_BYTES_MAX]
            message.arguments_bytes = len(arguments)
            self.whole = False
        else:
            message.arguments = arguments
        self._request = request
        self._arguments = arguments
        self._transport = transport
        self._traced = traced
        self._answers: dict[int, pb.AttachRequest] = {}
        self.asks: dict[int, asyncio.Task[None]] = {}
        self.call = Call(message.call_id, message.tool, self)

    def same_request(self, tool: str, arguments: bytes) -> bool:
        """Return whether a request with the same id is the same call."""
        return self.call.tool == tool and (self._arguments == arguments or self.accepted)

    def launch(self, stream: Stream) -> None:
        """Send the request, which starts the call or attaches to it."""
        self.sent = True
        if len(self._arguments) <= PART_BYTES_MAX:
            stream.send(self._request)
        else:
            self.whole = False
            stream.send(self._parts())

    def unsend(self) -> None:
        """Take note that no daemon has the call: the one that it was sent to has refused it, and another one may run it."""
        self.sent = self.accepted = False

    def _parts(self) -> Iterator[pb.AttachRequest]:
        """Yield the request and the rest of its arguments; stop when the call has ended."""
        if self.outcome is None:
            yield self._request
        size = len(self._arguments)
        for start in range(PART_BYTES_MAX, size, PART_BYTES_MAX):
            if self.outcome is not None:
                return
            end = start + PART_BYTES_MAX
            self.whole = end >= size
            part = pb.Chunk(call_id=self.call.id, data=self._arguments[start:end], last=self.whole)
            yield pb.AttachRequest(chunk=part)

    def resend_messages(self) -> Iterator[pb.AttachRequest]:
        """Yield the answers and the abort of the call, to send them again on a new stream."""
        yield from self._answers.values()
        if self.abort_reason is not None:
            yield pb.AttachRequest(abort=pb.Abort(call_id=self.call.id, reason=self.abort_reason))

    def abort(self, reason: str) -> None:
        """Request the abort, once. A call that was not sent, or not with all of its arguments, has not begun, and ends here."""
        if self.outcome is None and self.abort_reason is None:
            self.abort_reason = reason
            if self.sent:
                self._transport.send(pb.AttachRequest(abort=pb.Abort(call_id=self.call.id, reason=reason)))
            if not (self.sent and self.whole):
                self.end(Outcome(Kind.aborted, "client", f"{reason or 'by the client'}, before it was sent"))

    def was_asked(self, ask_id: int) -> bool:
        """Return whether the question or request was received before, answered or not."""
        return ask_id in self.asks or ask_id in self._answers

    def answer(self, ask_id: int, answer: pb.AttachRequest) -> None:
        """Send the answer to a question or a request, and keep it to send it again after a lost connection."""
        self.asks.pop(ask_id, None)
        if self.outcome is None:
            self._answers[ask_id] = answer
            if len(self._answers) > ANSWERS_KEPT_MAX:
                del self._answers[next(iter(self._answers))]
            self._transport.send(answer)

    def deliver(self, event: Event, size_bytes: int) -> None:
        """Give an event to the listener, or queue it for the iterator."""
        if self._listener is not None:
            self._listener[0](event)
            return
        if self._buffer is None:
            self._buffer = EventBuffer()
        self._buffer.put(event, size_bytes)
        self._wake_reader()

    def end(self, outcome: Outcome) -> None:
        """End the call; later outcomes are ignored."""
        if self.outcome is None:
            self.outcome = outcome
            if self._traced is not None:
                self._traced.end(outcome)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = ()
            if self._reader is not None:
                self._wake_reader()
            for ask in self.asks.values():
                ask.cancel()
            self._transport.remove(self)
            if self.watch is not None:
                self.watch.cancel()
            del self.call
            if self._listener is not None:
                listener, self._listener = self._listener, None
                listener[1](outcome)

    def listen(self, on_event: Callable[[Event], object], on_end: Callable[[Outcome], object]) -> None:
        """Report events and the outcome by calls."""
        if self.outcome is not None:
            on_end(self.outcome)
        else:
            self._listener = on_event, on_end

    def report(self, on_event: Callable[[Event], object]) -> None:
        """Report events by calls; what one raises aborts the call, and is raised by `ended`."""

        def told(event: Event) -> None:
            if self._failure is None:
                try:
                    on_event(event)
                except Exception as error:  # noqa: BLE001  the agent's own code; it must not end the session
                    self._failure = error
                    self.abort(f"on_event has failed: {type(error).__name__}")

        self.listen(told, lambda _: None)

    async def ended(self) -> Outcome:
        """Wait for the outcome; cancellation aborts the call. Raises what `on_event` has raised."""
        if self.outcome is None:
            try:
                await self._waiter()
            except asyncio.CancelledError:
                await self._stop()
                raise
            assert self.outcome is not None
        if self._failure is not None:
            raise self._failure
        return self.outcome

    async def interrupted(self, error: BaseException) -> Outcome:
        """Raise what a task was told before its first step; a cancellation aborts the call first."""
        if isinstance(error, asyncio.CancelledError):
            await self._stop()
        raise error

    async def events(self) -> AsyncIterator[Event]:
        """Yield unread and new events until the call has ended; cancellation aborts the call."""
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
        if self.outcome is None:
            self._waiters = tuple(waiter for waiter in self._waiters if not waiter.done())
            await self._waiter()

    def _waiter(self) -> asyncio.Future[None]:
        """Return a future for one task that waits until the call has ended."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        return waiter

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Call(Coroutine[Any, None, Outcome]):
    """One request to run one tool: await it for the Outcome, any number of times; iterate once over its events.

    `asyncio.create_task`, `TaskGroup.create_task`, `asyncio.gather` and `asyncio.wait_for` take it as it is.

    Cancelling a task while it waits for either aborts the call, and the cancellation is delivered when the tool has
    stopped; a second cancellation is delivered at once. A task that is cancelled while the body of its `async for`
    waits for something else leaves the call running: have the body call `abort()` then.

    Attributes:
        id: The id of the call, unique in its session.
        tool: The name of the tool.
    """

    __slots__ = ("_iterated", "_state", "_waits", "id", "tool")

    def __init__(self, call_id: str, tool: str, state: CallState) -> None:
        self.id = call_id
        self.tool = tool
        self._state = state
        self._iterated = False
        # Of the tasks that drive it
        self._waits: dict[asyncio.Task[Any] | None, Generator[Any, None, Outcome]] | None = None

    def __repr__(self) -> str:
        state = (
            self.outcome.kind
            if self.outcome
            else "aborting"
            if self._state.abort_reason is not None
            else "open"
        )
        return f"<Call {self.id} {self.tool} {state}>"

    @property
    def outcome(self) -> Outcome | None:
        """The Outcome; None until the call has ended."""
        return self._state.outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self._state.ended().__await__()

    def send(self, value: None, /) -> Any:
        """Take the next step of the running task's wait; for asyncio."""
        return self._step(None)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        """Raise an exception in the running task's wait; for asyncio. A cancellation aborts the call."""
        error = val if isinstance(val, BaseException) else typ if isinstance(typ, BaseException) else typ()
        return self._step(error.with_traceback(tb) if tb is not None else error)

    def close(self) -> None:
        """Abort the call; for a task group that is ending, and starts nothing any more."""
        self.abort(CANCELLED)

    def _step(self, error: BaseException | None) -> Any:
        if self._waits is None:
            self._waits = {}
        task = asyncio.current_task()
        wait = self._waits.get(task)
        try:
            if wait is not None:
                return wait.send(None) if error is None else wait.throw(error)
            begun = self._state.ended() if error is None else self._state.interrupted(error)
            wait = self._waits[task] = begun.__await__()
            return wait.send(None)
        except BaseException:  # the end of the wait, by the outcome too
            self._waits.pop(task, None)
            raise

    def __aiter__(self) -> AsyncIterator[Event]:
        self._begin_reading()
        return self._state.events()

    def listen(self, on_event: Callable[[Event], object], on_end: Callable[[Outcome], object]) -> None:
        """Have the events and the outcome reported as they are read, in place of iterating; a call needs no task then.

        What a callback raises ends the session. A call that has ended is reported at once.

        Args:
            on_event: Called with each event.
            on_end: Called once with the outcome.
        """
        self._begin_reading()
        self._state.listen(on_event, on_end)

    def report(self, on_event: Callable[[Event], object]) -> None:
        """Have the events reported as they are read, in place of iterating; what `on_event` raises aborts the call.

        Args:
            on_event: Called with each event. What it raises is raised by awaiting the call, when the tool has stopped.

        Raises:
            TypeError: `on_event` is a coroutine function, which would not be awaited.
        """
        if iscoroutinefunction(on_event):
            raise TypeError(
                "on_event is called as events are read, and is not awaited: pass a plain function, or iterate with "
                "`async for event in call`"
            )
        self._begin_reading()
        self._state.report(on_event)

    def _begin_reading(self) -> None:
        if self._iterated:
            raise RuntimeError(f"{self!r} has been iterated over, and its events can be read only once")
        self._iterated = True

    def abort(self, reason: str = "") -> None:
        """Request that the call stops; returns at once, and a second abort has no effect.

        The call still ends with one Outcome, of kind `aborted` unless it ended before.

        Args:
            reason: The text that the tool gets as `context.abort.reason`; default: none.
        """
        self._state.abort(reason)
