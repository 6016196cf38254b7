"""Sessions of the agent that tools began, and talk with.

A turn has a client of its own, which resumes the session and ends with the turn: an idle agent is a
file and no process. Turns of one session come one after another.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, ResultMessage

from .callers import MAIN

__all__ = ["SubSessions"]

TURNS_MAX = 8
"""At once, those that wait for their session among them; each is a process of 200 MB."""
INTERRUPT_SECONDS_MAX = 2.0
"""For an agent to heed an interrupt, which takes it some milliseconds; then its process is ended all the same."""
SUB_SESSIONS_MAX = 1000
"""That are remembered; the agent keeps its own files of all of them."""


@dataclass(eq=False)
class SubSession:
    """One session."""

    session_id: str
    agent_name: str
    begun: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SubSessions:
    """All sessions that tools began. `leave` ends the background turns."""

    def __init__(self, observe: Callable[[Message], None]) -> None:
        self._observe = observe
        self._known: dict[str, SubSession] = {}
        self._waits: list[tuple[str, str]] = []  # which session waits for which
        self._turns = 0
        self._tasks: set[asyncio.Task[str]] = set()

    async def start(self, options: ClaudeAgentOptions, prompt: str, agent_name: str) -> str:
        """Begin a session, and return its id when the agent is at work. Raises RuntimeError and what the SDK raises."""
        one = self._new(agent_name)
        at_work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            self._turn(options, one, prompt, at_work), name=f"session {one.session_id}"
        )
        self._tasks.add(task)  # ended by `leave`
        task.add_done_callback(self._ended)
        try:
            waiting: set[asyncio.Future[Any]] = {task, at_work}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if not at_work.done():
            await task
        return one.session_id

    async def send(
        self, options: ClaudeAgentOptions, prompt: str, session_id: str, agent_name: str, caller: str
    ) -> tuple[str, str]:
        """Say something to a session, a new one where none is named; its id, and what the agent answers.

        `caller` is the session whose tool asks for it. Raises LookupError, RuntimeError and what the SDK raises.
        """
        one = self._known.get(session_id) if session_id else self._new(agent_name)
        if one is None:
            raise LookupError(f"no session {session_id!r} was begun here; session.list has those that were")
        if self._is_waited_for(caller, one.session_id):
            raise RuntimeError(
                f"session {one.session_id} waits for this call, so that its answer would never come"
            )
        wait = caller, one.session_id
        self._waits.append(wait)
        try:
            return one.session_id, await self._turn(options, one, prompt)
        finally:
            self._waits.remove(wait)

    def list(self) -> list[dict[str, object]]:
        """The sessions, the oldest first."""
        return [
            {"session_id": one.session_id, "agent_name": one.agent_name, "running": one.turn.locked()}
            for one in self._known.values()
        ]

    async def leave(self) -> None:
        """End the turns that `start` began, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _new(self, agent_name: str) -> SubSession:
        one = SubSession(str(uuid.uuid4()), agent_name or MAIN)
        self._known[one.session_id] = one
        if len(self._known) > SUB_SESSIONS_MAX:
            del self._known[next(iter(self._known))]
        return one

    def _is_waited_for(self, caller: str, session_id: str) -> bool:
        """Whether a session waits for this caller, be it by way of others."""
        waiting, seen = {caller}, set[str]()
        while waiting:
            seen |= waiting
            waiting = {waits for waits, for_whom in self._waits if for_whom in waiting} - seen
        return bool(caller) and session_id in seen

    async def _turn(
        self,
        options: ClaudeAgentOptions,
        one: SubSession,
        prompt: str,
        at_work: asyncio.Future[None] | None = None,
    ) -> str:
        """One turn of the agent, from its process's start to its end."""
        if self._turns >= TURNS_MAX:
            raise RuntimeError(f"{TURNS_MAX} sessions are at work for tools already; wait for one of them")
        self._turns += 1
        last: Message | None = None
        try:
            async with one.turn, ClaudeSDKClient(_for(options, one)) as client:
                await _check(client, one.agent_name)
                try:
                    await client.query(prompt)
                    async for message in client.receive_response():
                        one.begun = True
                        if at_work is not None and not at_work.done():
                            at_work.set_result(None)
                        self._observe(message)
                        last = message
                except asyncio.CancelledError:
                    await _interrupt(client)
                    raise
        finally:
            self._turns -= 1
            if not one.begun:
                self._known.pop(one.session_id, None)
        if not isinstance(last, ResultMessage):
            raise RuntimeError("the agent ended in the middle of its turn")  # noqa: TRY004  it is not about a type
        if last.is_error:
            raise RuntimeError(last.result or "; ".join(last.errors or ()) or last.subtype)
        return last.result or ""

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who wants to know how it ended asks with the next turn


def _for(options: ClaudeAgentOptions, one: SubSession) -> ClaudeAgentOptions:
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
    """End the turn before the client: one that only loses its tools goes on to ask the model what to do about it."""
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
