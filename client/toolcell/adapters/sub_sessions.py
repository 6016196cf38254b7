"""Sessions of an agent that tools begin, and talk with (`context.request`): what is the same for every agent.

The turns of a session come one after another. A tool that waits for a session can be called by that session in turn,
through any number of others, so it is recorded which session waits for which, and a session that would wait for
itself is refused.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

TURNS_MAX = 8
"""At once, those that wait for their session among them; each asks a model, or is a process of 200 MB."""


@dataclass(eq=False)
class SubSession(ABC):
    """One session that a tool began."""

    session_id: str
    title: str = ""
    """What the tool that began it calls it."""
    turns: int = 0
    """The one at work, and those that wait for it."""
    failed: bool = False
    """Whether its last turn did."""
    begun_at: float = field(default_factory=time.monotonic)
    active_at: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    @abstractmethod
    def agent_name(self) -> str:
        """The agent that the session is with."""


_One = TypeVar("_One", bound=SubSession)
_Origin = TypeVar("_Origin")


class SubSessions(ABC, Generic[_One, _Origin]):
    """All sessions that tools began through one adapter. `leave` ends the turns that no tool waits for.

    An adapter's `_Origin` is what it makes a session from, on behalf of one call.
    """

    services: ClassVar[tuple[str, ...]] = ("session.start", "session.send", "session.list")

    def __init__(self) -> None:
        self.known: dict[str, _One] = {}
        self._waits: list[tuple[str, str]] = []  # which session waits for which
        self._turns = 0
        self._tasks: set[asyncio.Task[str]] = set()

    @abstractmethod
    async def create(self, origin: _Origin, agent_name: str) -> _One:
        """Make a session and remember it in `known`; `agent_name` is empty for the main agent."""

    @abstractmethod
    async def turn(self, origin: _Origin, one: _One, prompt: str, at_work: Callable[[], None]) -> str:
        """Say something to a session, and return what it answers; `at_work` is called once it has it."""

    async def serve(
        self, service: str, arguments: Mapping[str, object], caller: str, origin: _Origin
    ) -> dict[str, Any]:
        """Serve one of `services`; `caller` is the session whose tool asks, or empty.

        Raises LookupError, RuntimeError and what the SDK raises.
        """
        if service == "session.list":
            return {"sessions": self.list()}
        prompt, session_id, agent_name, title = (
            str(arguments.get(name, "")) for name in ("prompt", "session_id", "agent_name", "title")
        )
        if service == "session.start":
            return {"session_id": await self.start(origin, prompt, agent_name, title)}
        session_id, reply = await self.send(origin, prompt, session_id, agent_name, caller, title)
        return {"session_id": session_id, "reply": reply}

    def list(self) -> list[dict[str, object]]:
        """The sessions that can be talked with, the oldest first."""
        now = time.monotonic()
        return [
            {
                "session_id": one.session_id,
                "agent_name": one.agent_name,
                "title": one.title,
                "running": one.turns > 0,
                "failed": one.failed and not one.turns,
                "age_seconds": round(now - one.begun_at, 3),
                "idle_seconds": 0.0 if one.turns else round(now - one.active_at, 3),
            }
            for one in self.known.values()
        ]

    async def start(self, origin: _Origin, prompt: str, agent_name: str, title: str = "") -> str:
        """Begin a session that goes on by itself, and return its id when it is at work."""
        at_work: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def run() -> str:
            with self._place():
                one = await self.create(origin, agent_name)
                one.title = title

                def tell() -> None:
                    if not at_work.done():
                        at_work.set_result(one.session_id)

                answer = await self._turn(origin, one, prompt, tell)
                tell()
                return answer

        task = asyncio.create_task(run(), name="session of a tool")  # ended by `leave`
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            waiting: set[asyncio.Future[str]] = {task, at_work}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if not at_work.done():
            await task
        return at_work.result()

    async def send(
        self, origin: _Origin, prompt: str, session_id: str, agent_name: str, caller: str, title: str = ""
    ) -> tuple[str, str]:
        """Say something to a session, a new one where `session_id` is empty; its id, and what it answers.

        Being cancelled aborts the turn, and returns when the tools in it have stopped.
        """
        if session_id and self._is_waited_for(caller, session_id):
            raise RuntimeError(
                f"session {session_id} waits for this call, so that its answer would never come"
            )
        if session_id and session_id not in self.known:
            raise LookupError(f"no session {session_id!r} was begun here; session.list has those that were")
        with self._place():
            one = self.known[session_id] if session_id else await self.create(origin, agent_name)
            one.title = title or one.title
            wait = caller, one.session_id
            self._waits.append(wait)
            try:
                return one.session_id, await self._turn(origin, one, prompt, lambda: None)
            finally:
                self._waits.remove(wait)

    async def leave(self) -> None:
        """End the turns that `start` began, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _turn(self, origin: _Origin, one: _One, prompt: str, at_work: Callable[[], None]) -> str:
        one.turns += 1
        try:
            async with one.lock:
                one.failed = True
                answer = await self.turn(origin, one, prompt, at_work)
                one.failed = False
                return answer
        finally:
            one.turns -= 1
            one.active_at = time.monotonic()

    @contextmanager
    def _place(self) -> Generator[None]:
        """Take one of the turns at once. Raises RuntimeError."""
        if self._turns >= TURNS_MAX:
            raise RuntimeError(f"{TURNS_MAX} sessions are at work for tools already; wait for one of them")
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1

    def _is_waited_for(self, caller: str, session_id: str) -> bool:
        """Whether a session waits for this caller, directly or through others."""
        seen: set[str] = set()
        waiting = {caller} if caller else set[str]()
        while waiting:
            seen |= waiting
            waiting = {waits for waits, for_whom in self._waits if for_whom in waiting} - seen
        return session_id in seen

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the next turn tells how it ended
