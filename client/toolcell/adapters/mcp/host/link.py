"""The session of a host with the daemon, which may be opened before the host's handlers are there.

So its callbacks are passed on: to nothing while it has no user, and no calls either.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolcell.adapters.mcp.host.limits import limits_of
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Catalog,
    Limits,
    Question,
    Session,
    Unavailable,
    connect,
    question_service,
)
from toolcell.client._launch.daemon import find
from toolcell.client.callbacks import AskCallback, Service
from toolcell.client.forms import QUESTION

Start: TypeAlias = Literal["start", "running", "private"]

AGENT = "mcp"
INPUT = "mcp.input"
"""The service by which a tool asks the host itself: requests of the protocol by name, and their results."""
LINGER_SECONDS = 2.0  # a restarted daemon is back by then; a killed host needs no longer wait


@dataclass(frozen=True, slots=True)
class LinkCaller:
    """What a session is opened for."""

    agent: str
    directory: str
    elicits: bool
    """Whether the host puts questions to a person."""


@dataclass(slots=True)
class Callbacks:
    """What the questions of a session's tools, and changes of its catalog, are passed to."""

    ask: AskCallback
    question: Callable[[Question], Awaitable[object]]
    input: Service
    changed: Callable[[], object]


class HostLink:
    """Opens the sessions of one host; the first one may be opened ahead of need."""

    def __init__(self, socket: str | None, daemon: Start, timeout_seconds: float | None = None) -> None:
        """`timeout_seconds` limits each call, for a host that gives up after that long and does not say so; default: no limit."""
        self._socket = socket
        self._limits = Limits(timeout=timeout_seconds) if timeout_seconds is not None else Limits()
        self._daemon: Start = daemon
        # A session that is open and not in use: who it is for, what its callbacks lead to, and what ends it.
        self._ahead: tuple[LinkCaller, _Relay, Session] | None = None
        self._stack = AsyncExitStack()

    async def start_daemon(self) -> None:
        """Have the user's daemon started; if it cannot be, opening a session says why."""
        if self._daemon == "start":
            with suppress(Unavailable):
                await find(self._socket, self._daemon).ready()

    async def open_ahead(self, caller: LinkCaller) -> Session:
        """Open a session that `session` will use. Raises Unavailable."""
        relay = _Relay()
        session = await self._stack.enter_async_context(self._connect(caller, relay))
        self._ahead = caller, relay, session
        return session

    @asynccontextmanager
    async def session(self, caller: LinkCaller, callbacks: Callbacks) -> AsyncGenerator[Session]:
        """Be in a session: the one that was opened ahead if it is for this caller, else a new one. Raises Unavailable."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == caller:
            _, relay, session = ahead
            relay.target = callbacks
            async with self._stack.pop_all():
                yield session
            return
        await self.close()
        async with self._connect(caller, _Relay(callbacks)) as session:
            yield session

    async def close(self) -> None:
        """End a session that was opened ahead and is not in use."""
        self._ahead = None
        await self._stack.aclose()

    def _connect(self, caller: LinkCaller, relay: _Relay) -> AbstractAsyncContextManager[Session]:
        # Whether the host has what a tool asks it for is known with each call.
        services: dict[str, Service] = {INPUT: relay.input}
        if caller.elicits:
            services[QUESTION] = question_service(relay.question)
        return connect(
            self._socket,
            agent=caller.agent or AGENT,
            directory=caller.directory,
            limits={**limits_of(caller.agent), **self._limits},
            ask=relay.ask if caller.elicits else None,
            services=services,
            on_catalog=relay.on_catalog,
            daemon=self._daemon,
            linger=LINGER_SECONDS,
        )


class _Relay:
    """The callbacks of a session, which has them for its life, on to those of its user."""

    def __init__(self, target: Callbacks | None = None) -> None:
        self.target = target

    async def ask(self, ask: Ask) -> Answer:
        assert self.target is not None  # there are no calls before
        return await self.target.ask(ask)

    async def question(self, question: Question) -> object:
        assert self.target is not None
        return await self.target.question(question)

    async def input(self, call: Call, **requests: object) -> object:
        assert self.target is not None
        return await self.target.input(call, **requests)

    def on_catalog(self, _: Catalog) -> None:
        if self.target is not None:
            self.target.changed()
