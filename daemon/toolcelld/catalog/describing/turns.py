"""The order in which files are described: the directory with the least in work is next, and slow files hold up no others.

There are few slots. A file that takes long gives its slot back and goes on in a slow place, of which there are more. Where
those are taken too, it keeps its slot until a directory comes that has nothing in work: then it is stopped, and begins
again in the next slow place that is free. So a directory whose files are quick waits for those of others for the time of
one slot, however many of them hang.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

SLOW_SECONDS: Final = 0.5
"""So long a file has its slot; one that loads for longer goes on without it."""
SLOW_MAX: Final = 3
"""How many times as many slow places as slots there are."""


class _Places:
    """A number of places, and the queues for them, by directory."""

    def __init__(self, count: int, load: Counter[str]) -> None:
        self.free = count
        self.waiting: dict[
            str, deque[asyncio.Future[None]]
        ] = {}  # by directory, the one that has waited longest first
        self._load = load

    def ask(self, directory: str) -> asyncio.Future[None]:
        """Return what is done when there is a place; `wait` for it."""
        place = asyncio.get_running_loop().create_future()
        if self.free:
            self.free -= 1
            place.set_result(None)
        else:
            self.waiting.setdefault(directory, deque()).append(place)
        return place

    async def wait(self, directory: str, place: asyncio.Future[None]) -> None:
        """Wait for a place. When cancelled, none is taken."""
        try:
            await asyncio.shield(place)
        except asyncio.CancelledError:
            if place.done():
                self.give()
            else:
                self._remove(directory, place)
            raise

    def give(self) -> None:
        """Give a place back, to the directory with the smallest load of those that wait."""
        if not self.waiting:
            self.free += 1
            return
        directory = min(self.waiting, key=self._load.__getitem__)
        place = self.waiting[directory][0]
        self._remove(directory, place)
        place.set_result(None)

    def _remove(self, directory: str, place: asyncio.Future[None]) -> None:
        queue = self.waiting.pop(directory)
        queue.remove(place)
        if queue:
            self.waiting[directory] = queue  # behind the others


class _Turn:
    """A file that has a slot, or a slow place instead."""

    def __init__(self, directory: str, working: asyncio.Future[Any]) -> None:
        self.directory = directory
        self.working = working
        self.is_slow = False
        self.is_stopped = False


class Turns:
    """The slots and the slow places.

    Args:
        slots: How many files have a slot at the same time.
        slow_seconds: For how long a file has one.
    """

    def __init__(self, slots: int, slow_seconds: float = SLOW_SECONDS) -> None:
        self._slow_seconds = slow_seconds
        self._load: Counter[str] = Counter()  # files of a directory that have begun and not ended
        self._slots = _Places(slots, self._load)
        self._slow = _Places(slots * SLOW_MAX, self._load)
        self._overdue: dict[_Turn, None] = {}  # with a slot for longer than they should; the oldest first
        self._stopping = 0  # that were stopped and still have their slots

    async def run(self, directory: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run work when its turn has come, a second time from its beginning if it was stopped.

        Args:
            work: What is run; it may be cancelled and run again.
        """
        slot = self._slots.ask(directory)
        self._make_room()
        await self._slots.wait(directory, slot)
        self._load[directory] += 1
        try:
            working = asyncio.ensure_future(work())
            turn = _Turn(directory, working)
            try:
                return await self._first(turn, working)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not turn.is_stopped or (task is not None and task.cancelling()):
                    raise
            await self._slow.wait(directory, self._slow.ask(directory))
            try:
                return await work()
            finally:
                self._slow.give()
                self._make_room()
        finally:
            self._load[directory] -= 1
            if not self._load[directory]:
                del self._load[directory]

    async def _first(self, turn: _Turn, working: asyncio.Future[T]) -> T:
        timer = asyncio.get_running_loop().call_later(self._slow_seconds, self._late, turn)
        try:
            return await working
        finally:
            timer.cancel()
            self._overdue.pop(turn, None)
            self._stopping -= turn.is_stopped
            (self._slow if turn.is_slow else self._slots).give()
            self._make_room()

    def _late(self, turn: _Turn) -> None:
        self._overdue[turn] = None
        self._make_room()

    def _make_room(self) -> None:
        """Have overdue files go on in slow places; stop as many of the rest as directories wait that have nothing in work."""
        while self._overdue and self._slow.free:
            turn = next(iter(self._overdue))
            del self._overdue[turn]
            turn.is_slow = True
            self._slow.free -= 1
            self._slots.give()
        if not self._overdue:
            return
        idle = sum(not self._load[directory] for directory in self._slots.waiting)
        for turn in sorted(self._overdue, key=lambda each: -self._load[each.directory])[
            : max(0, idle - self._stopping)
        ]:
            del self._overdue[turn]
            turn.is_stopped = True
            self._stopping += 1
            turn.working.cancel()
