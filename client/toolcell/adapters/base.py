"""What every adapter is: a Session on one side, an agent's own kind of tools on the other.

An adapter is a subclass of `AgentAdapter` that says two things in its agent's words: what a tool is (`tool`), and how
a call ended (`result`). Everything between is here and the same for all: `connect` opens a session under the agent's
name with its limits, `tools` lists what the agent is to offer, `call` forwards a call and is aborted by being
cancelled. Nothing here decides anything that the daemon could: it encodes, forwards and decodes.

    async with ClaudeAdapter.connect(directory=".") as adapter:
        agent.register(adapter.tools())

An agent cuts what it finds too long, each in its own way. So each adapter asks the daemon to cut a little earlier: then
the agent never does, the notice is ours, and the rest can be read with the tool `toolcell_read_output`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Generic, Literal, Self, TypeVar

from toolcell._paths import is_elsewhere
from toolcell._printable import printable
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Catalog,
    Event,
    Kind,
    Limits,
    Outcome,
    Problem,
    Question,
    Session,
    ToolInfo,
    connect,
)
from toolcell.client.call import CANCELLED
from toolcell.client.forms import QUESTION
from toolcell.client.notes import NOTIFY, note_of

from . import own_names, read_output
from .call_events import ToolComplete, ToolStart

logger = logging.getLogger(__name__)

ToolT = TypeVar("ToolT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who calls, as the agent names it; empty where the agent does not say."""

    session_id: str = ""
    """The agent's own session; not the daemon's, which may serve several of them."""
    message_id: str = ""
    """The message of the model that asked for the call."""
    agent_name: str = ""
    """Which of the agent's agents: "main", or a sub-agent's name."""
    call_id: str | None = None
    """The agent's id of the call; the same id is the same call. None: one is made."""


NO_ORIGIN = Origin()
ABORT = "agent.abort"
"""The service that `context.abort()` uses: `reason`."""


class AgentAdapter(ABC, Generic[ToolT, ResultT]):
    """One agent's side of a session."""

    agent: ClassVar[str]
    """The program, as `ToolContext.agent` has it: "claude", "copilot", "opencode"."""
    limits: ClassVar[Limits]
    """Of outputs, below what the agent cuts by itself: `output_bytes` and, where it counts lines, `output_lines`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.directory = os.path.realpath(os.curdir)
        """Whose tools these are, and where the agent should work; `connect` sets it to its own."""
        self.elsewhere = False
        """Whether the tools run on another machine, and the agent may work in any directory of this one."""
        self.on_tool: Callable[[ToolStart | ToolComplete], object] | None = None
        """Called when a tool begins and when it has ended, for an application that shows that; must return soon."""
        self.own_tools: frozenset[str] = frozenset()
        """The names of the agent's own tools, where ours stand beside them without a prefix; see `problems`."""
        self._told: frozenset[Problem] = frozenset()
        self._wrong = frozenset(session.catalog.errors)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.session!r}>"

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        address: str | None = None,
        *,
        directory: str | os.PathLike[str] = ".",
        resume: str | None = None,
        allow: Sequence[str] = ("*",),
        deny: Sequence[str] = (),
        daemon: Literal["start", "running", "private"] = "start",
        linger: float | None = None,
    ) -> AsyncGenerator[Self]:
        """An adapter in a session of its own, which answers questions, serves, and follows the catalog.

        The arguments are those of `toolcell.client.connect`. Raises Unavailable.
        """
        made: asyncio.Future[Self] = asyncio.get_running_loop().create_future()

        async def ask(question: Ask) -> Answer:
            return await (await asyncio.shield(made)).ask(question)

        def service(name: str) -> Callable[..., Awaitable[object]]:
            async def serve(call: Call, **arguments: object) -> object:
                adapter = await asyncio.shield(made)
                if name == QUESTION:
                    return {"value": await adapter.question(Question.read(call, arguments))}
                if name == NOTIFY:
                    await adapter.notify(call, *note_of(arguments))
                    return None
                if name == ABORT:
                    await adapter.abort(call, str(arguments.get("reason", "")))
                    return None
                return await adapter.serve(name, call, arguments)

            return serve

        def changed(catalog: Catalog) -> None:
            if made.done():
                made.result()._take_up(catalog)

        async with connect(
            address,
            agent=cls.agent,
            directory=directory,
            resume=resume,
            allow=allow,
            deny=deny,
            limits=cls.limits,
            ask=ask,
            services={name: service(name) for name in cls.services},
            on_catalog=changed,
            daemon=daemon,
            linger=linger,
        ) as session:
            adapter = cls(session)
            adapter.elsewhere = daemon != "private" and is_elsewhere(address)
            if not adapter.elsewhere:  # else the agent works where it is
                adapter.directory = os.path.realpath(directory)  # noqa: ASYNC240  the session has looked there already
            made.set_result(adapter)
            try:
                yield adapter
            finally:
                await adapter.leave()

    # What an agent's adapter says

    @abstractmethod
    def tool(self, info: ToolInfo) -> ToolT:
        """A tool as the agent registers it; its handler awaits `call`."""

    @abstractmethod
    def result(self, outcome: Outcome) -> ResultT:
        """How a call ended, as the agent shows it to its model; never an exception."""

    async def ask(self, ask: Ask) -> Answer:
        """Put a tool's question to the agent's user; without a way to do that, the answer is no."""
        return False

    async def question(self, question: Question) -> object:
        """Put a tool's question to the agent's user, and return the answer, or None if it is dismissed.

        Called where `services` has "ui.question". An exception is the tool's `ToolError`.
        """
        raise NotImplementedError(QUESTION)

    async def notify(self, call: Call, message: str, level: Literal["info", "warning", "error"]) -> None:
        """Show the agent's user a tool's note, where `services` has "ui.notify"; else it is a line of the call's log."""
        raise NotImplementedError(NOTIFY)

    async def abort(self, call: Call, reason: str) -> None:
        """Abort the turn of the agent that the call belongs to, where `services` has "agent.abort".

        Not the turn of another session: the tool was called in this one. An exception is the tool's `ToolError`.
        """
        raise NotImplementedError(ABORT)

    def on_catalog(self, catalog: Catalog) -> None:
        """The tools have changed: have the agent take them up, where it can while it runs. Must return soon."""

    services: ClassVar[tuple[str, ...]] = ()
    """What tools may ask for with `context.request`, by name; see `serve`."""

    async def serve(self, service: str, call: Call, arguments: Mapping[str, object]) -> object:
        """Do what a tool requests, one of `services`; the value is JSON, and an exception is the tool's `ToolError`.

        Three names mean the same in every adapter: "session.start" (`prompt`, `agent_name`, `title`) gives
        `{"session_id"}`, "session.send" (`prompt`, `session_id`, `agent_name`, `title`) gives `{"session_id", "reply"}`
        once the agent has answered, and "session.list" gives `{"sessions": [{"session_id", "agent_name", "title",
        "running", "failed", "age_seconds", "idle_seconds"}]}`.
        """
        raise NotImplementedError(service)

    async def leave(self) -> None:
        """End what `serve` has begun; the session still stands, so that calls which come of it can end."""

    # What all have in common

    def tools(self) -> list[ToolT]:
        """What the agent is to register: the session's tools, and one to read on where an output was cut.

        A tool with the name of one of the agent's own has another name here, unless the user's configuration lets it
        replace that; the log and `problems` say so.
        """
        renamed = frozenset(own_names.problems_of(self.session.catalog, self.own_tools, self.agent))
        for problem in sorted(renamed - self._told, key=lambda problem: problem.tool):
            logger.warning(
                "%s: %s", *(printable(text, lines=False) for text in (problem.path, problem.message))
            )
        self._told = renamed
        offered = read_output.offered(self.session.catalog)
        return [self.tool(info) for info in own_names.shown_tools(offered, self.own_tools).values()]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be used, as the catalog says, and the tools that do not have their own name in the agent."""
        catalog = self.session.catalog
        return (*catalog.problems, *own_names.problems_of(catalog, self.own_tools, self.agent))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None,
        origin: Origin = NO_ORIGIN,
        *,
        on_event: Callable[[Event], Awaitable[object]] | None = None,
    ) -> ResultT:
        """Run one of `tools` and say how it ended; being cancelled aborts it, and returns when it has stopped.

        `on_event` is awaited for what happens until then, in order; one that raises is logged, and no harm to the call.
        """
        return self.result(await self.outcome(tool, arguments, origin, on_event=on_event))

    async def outcome(
        self,
        tool: str,
        arguments: Mapping[str, object] | None,
        origin: Origin = NO_ORIGIN,
        *,
        on_event: Callable[[Event], Awaitable[object]] | None = None,
    ) -> Outcome:
        """As `call`, in our own words."""
        tool = own_names.name_in(self.session.catalog, tool, self.own_tools)
        if read_output.is_ours(tool, self.session.catalog):
            return await read_output.read(self.session, arguments or {}, self.limits)
        try:
            call = self.session.call(
                tool,
                arguments,
                call_id=origin.call_id,
                session_id=origin.session_id,
                message_id=origin.message_id,
                agent_name=origin.agent_name,
            )
        except (TypeError, ValueError) as error:
            return Outcome(Kind.invalid_arguments, message=str(error))
        self._tell(ToolStart(origin.session_id, call.id, tool, arguments or {}, datetime.now(UTC)))
        try:
            if on_event is not None:
                async for event in call:
                    await _pass_on(call, event, on_event)
            return read_output.with_handle(await call)
        finally:
            if call.outcome is not None:  # else the waiter was cancelled twice, and the tool may still run
                self._tell(ToolComplete(origin.session_id, call.id, tool, call.outcome, datetime.now(UTC)))

    def _take_up(self, catalog: Catalog) -> None:
        """The catalog is another: log what of it cannot be used since now, such as a file that an edit has broken."""
        for problem in catalog.errors:
            if problem not in self._wrong:
                logger.warning("%s", problem)
        self._wrong = frozenset(catalog.errors)
        self.on_catalog(catalog)

    def _tell(self, happening: ToolStart | ToolComplete) -> None:
        if self.on_tool is not None:
            try:
                self.on_tool(happening)
            except Exception:
                logger.exception("on_tool failed for %s %s", happening.tool, happening.call_id)


async def _pass_on(call: Call, event: Event, on_event: Callable[[Event], Awaitable[object]]) -> None:
    try:
        await on_event(event)
    except asyncio.CancelledError:  # which the call knows of only while it is waited for itself
        call.abort(CANCELLED)
        await call
        raise
    except Exception:  # the call goes on without the callback
        logger.exception("on_event failed for %s of %s %s", event, call.tool, call.id)
