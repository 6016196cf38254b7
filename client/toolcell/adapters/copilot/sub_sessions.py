"""Sessions that tools begin, and talk with (`context.request`).

A session is made like the one whose tool asks, and stays with the program of its client.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from copilot import CopilotSession
from copilot.session_events import AssistantMessageData

from toolcell.adapters.sub_sessions import SubSession, SubSessions

from .session import MAIN, CopilotConversation, SessionSettings

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
    settings: SessionSettings | None


@dataclass(eq=False, kw_only=True)
class _SubSession(SubSession):
    session: CopilotSession
    conversation: CopilotConversation

    @property
    def agent_name(self) -> str:
        """As the session's events name it."""
        return self.conversation.agent_name


Begin: TypeAlias = Callable[[SessionSettings], Awaitable[tuple[CopilotSession, CopilotConversation]]]


class CopilotSubSessions(SubSessions[_SubSession, ServiceCaller]):
    """All sessions that tools began through one adapter. Its state changes on the loop only."""

    def __init__(self, begin: Begin) -> None:
        super().__init__()
        self._begin = begin

    async def create(self, origin: ServiceCaller, agent_name: str) -> _SubSession:
        """Make a session like the one whose tool asks; the oldest idle one goes where there are too many."""
        if origin.settings is None:
            raise RuntimeError(
                "the adapter made no session by create_session or resume_session, so it does not know how"
            )
        known = inspect.signature(origin.settings.client.create_session).parameters
        options = {
            name: value
            for name, value in origin.settings.options.items()
            if name in known and name not in NOT_SHARED
        }
        if agent_name and agent_name != MAIN:
            options["agent"] = agent_name
        session, conversation = await self._begin(replace(origin.settings, options=options))
        one = self.known[session.session_id] = _SubSession(
            session.session_id, session=session, conversation=conversation
        )
        for session_id, old in list(self.known.items()):
            if len(self.known) > SESSIONS_MAX and old is not one and not old.turns:
                del self.known[session_id]
                with suppress(Exception):  # the SDK's own; it is forgotten all the same
                    await old.session.disconnect()
        return one

    async def turn(
        self, origin: ServiceCaller, one: _SubSession, prompt: str, at_work: Callable[[], None]
    ) -> str:
        """What the session answers to a message."""
        at_work()
        one.conversation.served = origin.call_id
        try:
            event = await one.session.send_and_wait(prompt, timeout=TURN_SECONDS_MAX)
        except (asyncio.CancelledError, TimeoutError):
            await one.conversation.stop()
            raise
        finally:
            one.conversation.served = ""
        return event.data.content if event and isinstance(event.data, AssistantMessageData) else ""
