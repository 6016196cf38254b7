"""How many calls of a session run at once; the others wait in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Slots"]


class Slots:
    """A counted number of places."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    async def take(self) -> None:
        """Wait for a place. Cancelling gives the place in the queue up, or the place itself."""
        if self.take_now():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def take_back(self) -> None:
        """Take the place that was given up for a question, even if that makes one too many for a while."""
        self._free -= 1

    def give(self) -> None:
        """Give a place back; the one who has waited longest gets it."""
        self._free += 1
        while self._free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._free -= 1
                place.set_result(None)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)
