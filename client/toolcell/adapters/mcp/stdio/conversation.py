"""The JSON-RPC of one connection: the host's requests that are open, ours that are, and which protocol is spoken.

`StdioServer` reads the lines and decides what is answered where. Each request of the host is a task of the conversation, which writes
its answer, or none where the host has cancelled it. A request of ours is a future that the host's answer resolves.
When the conversation ends, the open requests are cancelled and answered as closed, and ours fail.

Ids are compared as the SDK compares them: "7" and 7 are the same. The newest of two requests with the same id is the one
that can be cancelled; both are answered.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from toolcell.adapters.pipes import Pipes

from . import wire

CLOSED_SECONDS_MAX: Final = 1.0
"""For the answer to a request that the end of the conversation has cancelled; the host may have stopped reading."""
ABANDONED_SECONDS_MAX: Final = 5.0
"""For the notification that a request of ours is not waited for any more."""


class Era(enum.Enum):
    """Which protocol a connection speaks, and how that is known."""

    OPEN = "no request has settled it"
    HANDSHAKE = "up to 2025-11-25, without a handshake so far"
    SHAKEN = "up to 2025-11-25, after the handshake"
    MODERN = "since 2026-07-28, where each request stands alone"


class Settled(enum.Enum):
    """What a request says about the protocol; `server/discover` says nothing, as a host that sends it has not chosen."""

    SHAKEN = "initialize was answered"
    ENVELOPED = "the request has the envelope of 2026-07-28"
    BARE = "any other request"


ERAS: Final[Mapping[tuple[Era, Settled], Era]] = {
    (Era.OPEN, Settled.SHAKEN): Era.SHAKEN,
    (Era.OPEN, Settled.ENVELOPED): Era.MODERN,
    (Era.OPEN, Settled.BARE): Era.HANDSHAKE,
    (Era.HANDSHAKE, Settled.SHAKEN): Era.SHAKEN,
}
"""The ways between eras; by everything else an era stays."""


class PeerError(Exception):
    """An error of JSON-RPC, of the host about a request of ours or of us about one of the host's."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        """`error` has a code, a message, and data if there are any."""
        super().__init__(error.get("message"))
        self.error = error


CLOSED: Final = {"code": wire.CONNECTION_CLOSED, "message": "Connection closed"}


class State(enum.Enum):
    """Of a request of the host."""

    OPEN = "it is worked on"
    CANCELLED = "the host does not want an answer, and the work ends"
    ENDED = "the work has ended"


class Exchange:
    """A request of the host, or a notification, which has no id. What is sent after its end is dropped."""

    __slots__ = ("abort", "conversation", "follow", "id", "key", "state", "task", "token")

    def __init__(
        self,
        conversation: Conversation,
        request_id: wire.RequestId | None,
        token: wire.RequestId | None = None,
    ) -> None:
        """`token` is what the host wants progress under; default: it wants none."""
        self.conversation = conversation
        self.id = request_id
        self.key = None if request_id is None else _key(request_id)
        self.token = token
        self.state = State.OPEN
        self.task: asyncio.Task[None] | None = None
        self.abort: Callable[[], object] | None = None  # of one without a task
        self.follow: Work | None = None

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        if self.state is not State.ENDED:
            await self.conversation.notify(method, params)

    @property
    def ended(self) -> bool:
        """Whether its work has ended."""
        return self.state is State.ENDED

    @property
    def is_cancelled(self) -> bool:
        """Whether the host does not want an answer."""
        return self.state is State.CANCELLED

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the host wants to hear of it."""
        if self.token is not None:
            params = {"progressToken": self.token, "progress": done, "total": total, "message": message}
            known = {name: value for name, value in params.items() if value is not None}
            await self.notify("notifications/progress", known)


Work = Callable[[Exchange], Awaitable[Mapping[str, Any]]]


class Conversation:
    """An asynchronous context manager; leaving it ends the open requests and waits for them."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        # All mutable state: the era, the host's requests that are open, ours, the number of the newest, and whether it ends.
        self.era = Era.OPEN
        self.handshake: Mapping[str, Any] | None = (
            None  # the parameters of `initialize`, if it was answered without the SDK
        )
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[wire.RequestId, Exchange] = {}
        self._held: set[Exchange] = set()
        self._asked: dict[wire.RequestId, asyncio.Future[Mapping[str, Any] | PeerError]] = {}
        self._count = 0
        self._ending = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for exchange in list(self._held):
            assert exchange.follow is not None
            self.begin(exchange, exchange.follow)
        await asyncio.sleep(0)  # a task that is cancelled before its first step would answer nothing
        self._ending = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(PeerError(CLOSED))
        for task in list(self._tasks):
            task.cancel()
        # An error of the body stays what it is: a group would wrap it.
        ours = (kind, error, traceback) if isinstance(error, asyncio.CancelledError) else (None, None, None)
        await self._group.__aexit__(*ours)

    def settle(self, said: Settled) -> None:
        """Take in what a request says about the protocol."""
        self.era = ERAS.get((self.era, said), self.era)

    def shake(self, params: Mapping[str, Any]) -> None:
        """Take in the handshake: the parameters of `initialize`."""
        self.settle(Settled.SHAKEN)
        self.handshake = params

    def begin(self, exchange: Exchange, work: Work) -> None:
        """Begin a request of the host, or go on with one that was held: `work` returns its result, or raises PeerError."""
        assert exchange.id is not None
        assert exchange.key is not None
        self._release(exchange)
        self._open[exchange.key] = exchange
        exchange.task = self.spawn(self._answer(exchange, exchange.id, work))
        exchange.task.add_done_callback(
            lambda _: self._forget(exchange)
        )  # also if it was cancelled before its first step

    def hold(self, exchange: Exchange, abort: Callable[[], object], follow: Work) -> None:
        """Keep a request open without a task, until `answer`, or until `begin` goes on with it.

        `abort` is called if the host cancels it; `follow` is begun when the conversation ends.
        """
        assert exchange.key is not None
        self._open[exchange.key] = exchange
        self._held.add(exchange)
        exchange.abort, exchange.follow = abort, follow

    def answer(self, exchange: Exchange, line: bytes) -> None:
        """End a request that was held, with a line, which a host that has cancelled it does not get."""
        wanted = exchange.state is State.OPEN
        self._release(exchange)
        self._forget(exchange)
        if wanted:
            self._pipes.put(line)

    def _release(self, exchange: Exchange) -> None:
        self._held.discard(exchange)
        exchange.abort = exchange.follow = None  # which hold the exchange in turn

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Run a coroutine that the end of the conversation cancels."""
        task: asyncio.Task[None] = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self, request_id: wire.RequestId) -> bool:
        """Cancel a request as the host wants it; return False if none with that id is open."""
        exchange = self._open.get(_key(request_id))
        if exchange is None:
            return False
        exchange.state = State.CANCELLED
        if exchange.task is not None:
            exchange.task.cancel()
        elif exchange.abort is not None:
            exchange.abort()
        return True

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; a host that is gone does not hear it."""
        if not self._ending:
            await self.write(wire.notification(method, params))

    async def write(self, line: bytes) -> None:
        """Write a line; a host that is gone does not hear it."""
        with suppress(OSError):
            await self._pipes.write(line)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        """Send a request and return the result. Raises PeerError: what the host answered, closed, or timed out."""
        if self._ending:
            raise PeerError(CLOSED)
        self._count += 1
        number = self._count
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._pipes.write(wire.request(number, method, params))
            async with asyncio.timeout(seconds):
                outcome = await answer
        except TimeoutError:
            await self._abandon(number, f"timed out after {seconds}s")
            message = f"Request {method!r} timed out"
            raise PeerError({"code": wire.REQUEST_TIMEOUT, "message": message}) from None
        except OSError:  # the host is gone
            raise PeerError(CLOSED) from None
        except asyncio.CancelledError:
            await self._abandon(number, "caller cancelled")
            raise
        finally:
            del self._asked[number]
        if isinstance(outcome, PeerError):
            raise outcome
        return dict(outcome)

    def resolve(self, number: wire.RequestId, outcome: Mapping[str, Any] | PeerError) -> None:
        """Take in the host's answer; one that nothing waits for is dropped."""
        answer = self._asked.get(_key(number))
        if answer is not None and not answer.done():
            answer.set_result(outcome)

    async def _abandon(self, number: int, reason: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ABANDONED_SECONDS_MAX):
                await self.notify(wire.CANCELLED, {"requestId": number, "reason": reason})

    async def _answer(self, exchange: Exchange, request_id: wire.RequestId, work: Work) -> None:
        wanted = False
        try:
            try:
                line = wire.result(request_id, await work(exchange))
            finally:
                wanted = exchange.state is State.OPEN
                self._forget(exchange)
        except PeerError as error:
            line = wire.failure(request_id, error.error)
        except RecursionError as error:  # a result that could be read, and is nested too deeply to be written
            line = wire.failure(request_id, {"code": wire.INTERNAL_ERROR, "message": str(error)})
        except asyncio.CancelledError:
            if wanted:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSED_SECONDS_MAX):
                        await self.write(wire.failure(request_id, CLOSED))
            raise
        if wanted:
            await self.write(line)

    def _forget(self, exchange: Exchange) -> None:
        assert exchange.key is not None
        exchange.state = State.ENDED
        if self._open.get(exchange.key) is exchange:
            del self._open[exchange.key]


def _key(request_id: wire.RequestId) -> wire.RequestId:
    """What an id is compared by."""
    if isinstance(request_id, str):
        with suppress(ValueError):
            return int(request_id)
    return request_id
