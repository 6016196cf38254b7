"""Sessions of the agent that tools began, and talk with.

A turn has a client of its own, which resumes the session and ends with the turn: an agent without a turn is a
file and no process.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, ResultMessage

from toolcell.adapters.sub_sessions import SubSession, SubSessions

from .callers import MAIN

INTERRUPT_SECONDS_MAX = 2.0
"""For an agent to heed an interrupt, which takes it some milliseconds; then its process is ended all the same."""
SUB_SESSIONS_MAX = 1000
"""That are remembered; the agent keeps its own files of all of them."""


@dataclass(eq=False, kw_only=True)
class ClaudeSubSession(SubSession):
    """One session."""

    agent: str
    begun: bool = False

    @property
    def agent_name(self) -> str:
        """As the tool named it."""
        return self.agent


class ClaudeSubSessions(SubSessions[ClaudeSubSession, ClaudeAgentOptions]):
    """All sessions that tools began, made from the options of the application."""

    def __init__(self, observe: Callable[[Message], None]) -> None:
        super().__init__()
        self._observe = observe

    async def create(self, origin: ClaudeAgentOptions, agent_name: str) -> ClaudeSubSession:
        """Give it an id; its first turn begins it."""
        one = ClaudeSubSession(str(uuid.uuid4()), agent=agent_name or MAIN)
        self.known[one.session_id] = one
        if len(self.known) > SUB_SESSIONS_MAX:
            del self.known[next(iter(self.known))]
        return one

    async def turn(
        self, origin: ClaudeAgentOptions, one: ClaudeSubSession, prompt: str, at_work: Callable[[], None]
    ) -> str:
        """One turn of the agent, from its process's start to its end."""
        last: Message | None = None
        try:
            async with ClaudeSDKClient(_for(origin, one)) as client:
                await _check(client, one.agent_name)
                try:
                    await client.query(prompt)
                    async for message in client.receive_response():
                        one.begun = True
                        at_work()
                        self._observe(message)
                        last = message
                except asyncio.CancelledError:
                    await _interrupt(client)
                    raise
        finally:
            if not one.begun:
                self.known.pop(one.session_id, None)
        if not isinstance(last, ResultMessage):
            raise RuntimeError("the agent ended in the middle of its turn")  # noqa: TRY004  no argument has a wrong type
        if last.is_error:
            raise RuntimeError(last.result or "; ".join(last.errors or ()) or last.subtype)
        return last.result or ""


def _for(options: ClaudeAgentOptions, one: ClaudeSubSession) -> ClaudeAgentOptions:
    """The application's options, for another session than its own."""
    agent = {} if one.agent_name == MAIN else {"agent": one.agent_name}
    return replace(
        options,
        resume=one.session_id if one.begun else None,
        session_id=None if one.begun else one.session_id,
        continue_conversation=False,
        fork_session=False,
        resume_session_at=None,
        resume_drops_turn=None,
        extra_args={**options.extra_args, **agent},
    )


async def _interrupt(client: ClaudeSDKClient) -> None:
    """End the turn before the client: one that only loses its tools asks the model what to do about it."""
    with (
        suppress(Exception),
        anyio.move_on_after(INTERRUPT_SECONDS_MAX),
    ):  # the SDK has no other word for "too late"
        await client.interrupt()


async def _check(client: ClaudeSDKClient, agent_name: str) -> None:
    """Raise LookupError for an agent that is none; Claude Code would take the main one without a word."""
    info = await client.get_server_info() or {}
    names = [agent["name"] for agent in info.get("agents", ())]
    if agent_name != MAIN and agent_name not in names:
        raise LookupError(f"no agent {agent_name!r}; there are {', '.join([MAIN, *names])}")
