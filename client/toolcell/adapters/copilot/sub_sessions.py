"""Sessions that tools begin, and talk with (`context.request`).

A session is made like the one whose tool asks, and stays with the program of its client. Its turns come one after
another. A tool that waits for a session can be called by that session in turn, through any number of others; so who
waits for whom is written down, and a session that would wait for itself is told so.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from copilot import CopilotSession
from copilot.session_events import AssistantMessageData

from .session import MAIN, Conversation, SessionSettings

__all__ = ["ServiceCaller", "SubSessions"]

TURNS_MAX = 8
"""At once, those that wait for their session among them; a model is asked for each."""
SESSIONS_MAX = 64
"""That can be talked with; each is some megabytes of the program's. The oldest idle one goes for the next."""
TURN_SECONDS_MAX = 3600.0
"""As long as the daemon lets a tool wait for a service."""
NOT_SHARED = ("session_id", "name", "cloud", "on_event")
"""Options that are about one session; the events of others would be news of strangers to a host's handler."""


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """On whose behalf."""

    call_id: str
    session_id: str
    settings: SessionSettings | None


@dataclass(eq=False)
class _SubSession:
    session: CopilotSession
    conversation: Conversation
    turns: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


Begin: TypeAlias = Callable[[SessionSettings], Awaitable[tuple[CopilotSession, Conversation]]]


class SubSessions:
    """All sessions that tools began through one adapter. Its state changes on the loop only."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._known: dict[str, _SubSession] = {}
        self._turns = 0
        self._waits: list[tuple[str, str]] = []  # which session waits for which
        self._tasks: set[asyncio.Task[str]] = set()

    async def start(self, caller: ServiceCaller, prompt: str, agent_name: str) -> str:
        """Begin a session that goes on by itself; its id. Raises RuntimeError and what the SDK raises."""
        self._take_turn()
        try:
            sub_session = await self._new(caller, agent_name)
        except BaseException:
            self._turns -= 1
            raise
        turn = self._turn(sub_session, prompt, caller)
        task = asyncio.create_task(turn, name=f"session {sub_session.session.session_id}")  # ended by `leave`
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return sub_session.session.session_id

    async def send(
        self, caller: ServiceCaller, prompt: str, session_id: str, agent_name: str
    ) -> tuple[str, str]:
        """Say something to a session, a new one where none is named; its id, and what it answers.

        Being cancelled aborts the turn, and returns when the tools in it have stopped. Raises LookupError,
        RuntimeError and what the SDK raises.
        """
        if session_id and self._is_waited_for(caller.session_id, session_id):
            raise RuntimeError(f"session {session_id} waits for this call, so that it cannot answer")
        if session_id and session_id not in self._known:
            raise LookupError(f"no session {session_id!r} was begun here")
        self._take_turn()
        try:
            sub_session = self._known[session_id] if session_id else await self._new(caller, agent_name)
            waits = (caller.session_id, sub_session.session.session_id)
            self._waits.append(waits)
            try:
                return sub_session.session.session_id, await self._turn(sub_session, prompt, caller)
            finally:
                self._waits.remove(waits)
        finally:
            self._turns -= 1

    def list(self) -> list[dict[str, Any]]:
        """The sessions that can be talked with."""
        return [
            {
                "session_id": session_id,
                "agent_name": sub_session.conversation.agent_name,
                "running": sub_session.turns > 0,
            }
            for session_id, sub_session in self._known.items()
        ]

    async def leave(self) -> None:
        """Abort the background turns."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _new(self, caller: ServiceCaller, agent_name: str) -> _SubSession:
        if caller.settings is None:
            raise RuntimeError(
                "the adapter made no session by create_session or resume_session, so it does not know how"
            )
        known = inspect.signature(caller.settings.client.create_session).parameters
        options = {
            name: value
            for name, value in caller.settings.options.items()
            if name in known and name not in NOT_SHARED
        }
        if agent_name and agent_name != MAIN:
            options["agent"] = agent_name
        session, conversation = await self._begin(replace(caller.settings, options=options))
        sub_session = self._known[session.session_id] = _SubSession(session, conversation)
        for session_id, old in list(self._known.items()):
            if len(self._known) > SESSIONS_MAX and old is not sub_session and not old.turns:
                del self._known[session_id]
                with suppress(Exception):  # the SDK's own; it is forgotten all the same
                    await old.session.disconnect()
        return sub_session

    def _take_turn(self) -> None:
        if self._turns >= TURNS_MAX:
            raise RuntimeError(f"{TURNS_MAX} sessions are at work for tools already; wait for one of them")
        self._turns += 1

    async def _turn(self, sub_session: _SubSession, prompt: str, caller: ServiceCaller) -> str:
        """What the session answers to a message."""
        sub_session.turns += 1
        try:
            async with sub_session.turn:
                sub_session.conversation.served = caller.call_id
                try:
                    event = await sub_session.session.send_and_wait(prompt, timeout=TURN_SECONDS_MAX)
                except (asyncio.CancelledError, TimeoutError):
                    await sub_session.conversation.stop()
                    raise
                finally:
                    sub_session.conversation.served = ""
        finally:
            sub_session.turns -= 1
        return event.data.content if event and isinstance(event.data, AssistantMessageData) else ""

    def _is_waited_for(self, caller: str, session_id: str) -> bool:
        """Whether a session waits for this caller, be it by way of others."""
        seen: set[str] = set()
        waiting = {caller} if caller else set[str]()
        while waiting:
            seen |= waiting
            waiting = {waits for waits, for_whom in self._waits if for_whom in waiting} - seen
        return session_id in seen

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        self._turns -= 1
        if not task.cancelled():
            task.exception()  # who wants to know how it ended asks with the next turn
