"""The gateway's sessions with the daemon, and the calls that run in them.

There is one session for all who name none, and others for clients that want state between calls (`isolation =
"session"`) or fewer tools. Each is a task of its own, because a session is left by the task that entered it. One
without a request for half an hour is left, and so are all when the gateway ends, which aborts what runs in them.

A call is a task too: it passes on what the tool tells, to the feed, and ends when the tool has.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from toolcell.client import Call, Catalog, Outcome, Refused, Session, Unavailable, connect
from toolcell.client.events import to_dict

from .feed import Feed, FeedEvent, name_of

AGENT = "http"
SESSIONS_MAX = 64
IDLE_SECONDS = 1800.0
LINGER_SECONDS = 2.0  # a restarted daemon is back by then

Start = Literal["start", "running", "private"]


class NoSession(Exception):
    """There is no session of that id, or no longer."""


class TooMany(Exception):
    """All sessions are taken."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call, and the task that ends when it has and all of its events are in the feed."""

    call: Call
    ended: asyncio.Task[Outcome]


@dataclass(slots=True)
class GatewaySession:
    """One session with the daemon."""

    id: str
    """The gateway's id of it, which its clients name; "" for the one of requests that name none."""
    session: Session
    calls: dict[str, RunningCall] = field(default_factory=dict[str, RunningCall])
    """The running calls by id."""
    used: int = 0
    """How many requests are being answered with it."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to have it left."""
    idle: asyncio.TimerHandle | None = None
    """Leaves it when it was not used for `IDLE_SECONDS`."""


class GatewaySessions:
    """An asynchronous context manager; its end is the end of all sessions."""

    def __init__(self, directory: str, *, socket: str | None = None, daemon: Start = "start") -> None:
        """Serve the tools of a directory.

        Args:
            directory: The project directory of every session; a client does not choose it.
            socket: The daemon's socket; default: the user's.
            daemon: As in `toolcell.client.connect`.
        """
        self.directory = directory
        self.feed = Feed()
        self._socket = socket
        self._daemon: Start = daemon
        self._group = asyncio.TaskGroup()
        self._sessions: dict[str, GatewaySession] = {}
        self._count = 0  # of sessions, those included that are being opened or left
        self._ending = False
        self._opening: asyncio.Future[GatewaySession] | None = None  # of the session of all who name none

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending = True
        for held in self._sessions.values():
            held.left.set()
        await self._group.__aexit__(kind, error, traceback)

    @property
    def every(self) -> list[GatewaySession]:
        return list(self._sessions.values())

    @property
    def opened(self) -> list[GatewaySession]:
        """The sessions that clients have opened and not closed."""
        return [held for held in self._sessions.values() if held.id]

    @asynccontextmanager
    async def use(self, session_id: str | None) -> AsyncGenerator[GatewaySession]:
        """The session of that id for the time of a request; None: the one of all who name none, opened now if needed.

        Raises NoSession or Unavailable.
        """
        held = await self._find(session_id or "")
        held.used += 1
        self._rest(held)
        try:
            yield held
        finally:
            held.used -= 1
            self._rest(held)

    async def open(self, *, allow: Sequence[str], deny: Sequence[str]) -> GatewaySession:
        """Open a session that sees fewer tools, or keeps state of its own. Raises TooMany or Unavailable."""
        if self._count >= SESSIONS_MAX:
            raise TooMany
        return await self._begin(f"s-{os.urandom(16).hex()}", allow, deny)

    def close(self, held: GatewaySession) -> None:
        """Leave a session, which aborts its calls; harmless twice."""
        held.left.set()

    def start(
        self, held: GatewaySession, tool: str, arguments: Mapping[str, Any], timeout_seconds: float | None
    ) -> RunningCall:
        """Start a call. Raises TypeError or ValueError for arguments that are not JSON."""
        call = held.session.call(tool, arguments, timeout=timeout_seconds)
        ended = self._group.create_task(self._follow(held, call, dict(arguments)), name=f"call {call.id}")
        running = RunningCall(call, ended)
        held.calls[call.id] = running
        return running

    async def _follow(self, held: GatewaySession, call: Call, arguments: dict[str, Any]) -> Outcome:
        """Pass on what a call tells, until it has ended."""
        about = {"session": held.id or None, "call_id": call.id}
        try:
            self.feed.put(
                FeedEvent("tool_use", {**about, "tool": call.tool, "arguments": arguments}, call.id)
            )
            async for event in call:
                self.feed.put(FeedEvent("message", {**about, **to_dict(event)}, call.id))
            outcome = await call
            self.feed.put(FeedEvent(name_of(outcome), {**about, **outcome.to_dict()}, call.id))
            self.feed.put(FeedEvent("completed", {**about, "kind": outcome.kind.value}, call.id))
            return outcome
        finally:
            del held.calls[call.id]
            self._rest(held)

    async def _default(self) -> GatewaySession:
        """The session of all who name none; they wait for it together."""
        if "" in self._sessions:
            return self._sessions[""]
        if self._opening is None:
            self._opening = self._begin("", ("*",), ())
            self._opening.add_done_callback(self._forget)
        return await asyncio.shield(self._opening)

    def _forget(self, opening: asyncio.Future[GatewaySession]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # retrieved, in case no request waits for it any longer

    def _begin(
        self, session_id: str, allow: Sequence[str], deny: Sequence[str]
    ) -> asyncio.Future[GatewaySession]:
        """Open a session in a task of its own; the future has it, or Unavailable or Refused."""
        opened: asyncio.Future[GatewaySession] = asyncio.get_running_loop().create_future()
        self._count += 1
        self._group.create_task(self._hold(session_id, allow, deny, opened), name=f"session {session_id}")
        return opened

    async def _hold(
        self,
        session_id: str,
        allow: Sequence[str],
        deny: Sequence[str],
        opened: asyncio.Future[GatewaySession],
    ) -> None:
        """Be in a session until it is left."""

        def changed(catalog: Catalog) -> None:
            about = {
                "session": session_id or None,
                "generation": catalog.generation,
                "counts": catalog.counts,
            }
            self.feed.put(FeedEvent("tools", about))

        try:
            async with connect(
                self._socket,
                agent=AGENT,
                directory=self.directory,
                allow=allow,
                deny=deny,
                on_catalog=changed,
                daemon=self._daemon,
                linger=LINGER_SECONDS,
            ) as session:
                held = GatewaySession(session_id, session)
                self._sessions[session_id] = held
                try:
                    if not opened.done():  # else the request that opened it has ended
                        opened.set_result(held)
                    if self._ending:
                        held.left.set()
                    self._rest(held)
                    await held.left.wait()
                finally:
                    del self._sessions[session_id]
                    if held.idle is not None:
                        held.idle.cancel()
            # The calls have ended with the session; their last events are passed on by their own tasks.
        except (Unavailable, Refused) as error:
            if not opened.done():
                opened.set_exception(error)
        finally:
            self._count -= 1

    def _rest(self, held: GatewaySession) -> None:
        """Leave a session after a time without a request; the one of requests that name none is kept."""
        if held.idle is not None:
            held.idle.cancel()
            held.idle = None
        if held.id and not held.used and not held.calls and not held.left.is_set():
            held.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, held.left.set)

    async def _find(self, session_id: str) -> GatewaySession:
        """The session of an id. Raises NoSession, or Unavailable."""
        if not session_id:
            return await self._default()
        held = self._sessions.get(session_id)
        if held is None or held.left.is_set():
            raise NoSession(session_id)
        return held
