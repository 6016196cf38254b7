"""A fair queue: owners take turns, and each has at most as many items served at once as it has places.

Items of one owner keep their order. An owner whose item is served goes behind all others, so a session
that asks for a thousand workers delays another one's first call by one call; order of arrival alone
would serve the thousand first. An item that waits for a place of its owner is not offered: only the
first items of an owner are, as many as it has free places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

__all__ = ["FairQueue", "Places"]

T = TypeVar("T")


class Places:
    """How many items of one owner may be served at once.

    Args:
        places: the number of places, all of them free.
    """

    __slots__ = ("free", "waiting")

    def __init__(self, places: int) -> None:
        # The mutable state. `free` is below zero while places that were given up for a question are taken back.
        self.free = places
        self.waiting = 0  # items in the queue; only the queue counts them

    @property
    def queued(self) -> int:
        """The items that wait for a place."""
        return max(0, self.waiting - max(0, self.free))

    def take(self) -> None:
        """Take a place, also where that makes one too many."""
        self.free -= 1

    def give(self) -> None:
        """Give a place back."""
        self.free += 1


class FairQueue(Generic[T]):
    """Items that wait, by owner; the owner whose turn it is comes first."""

    __slots__ = ("_rows", "count")

    def __init__(self) -> None:
        self._rows: dict[Places, dict[T, None]] = {}
        self.count = 0
        """How many items there are, also those that wait for a place of their owner."""

    def add(self, owner: Places, item: T) -> None:
        """Queue an item; an owner that had none goes behind all others."""
        self._rows.setdefault(owner, {})[item] = None
        self.count += 1
        owner.waiting += 1

    def serve(self, owner: Places, item: T) -> None:
        """Remove an item that gets what it waited for; its owner goes behind all others, and has a place less."""
        self.remove(owner, item)
        owner.take()
        if (row := self._rows.pop(owner, None)) is not None:
            self._rows[owner] = row

    def remove(self, owner: Places, item: T) -> None:
        """Remove an item that waits no more; its owner keeps its turn. Raises `KeyError` when it is not there."""
        row = self._rows[owner]
        del row[item]
        self.count -= 1
        owner.waiting -= 1
        if not row:
            del self._rows[owner]

    @property
    def all(self) -> list[T]:
        """Every item, also those that wait for a place of their owner."""
        return [item for row in self._rows.values() for item in row]

    @property
    def offered(self) -> int:
        """How many items `__iter__` has."""
        return sum(min(owner.waiting, max(0, owner.free)) for owner in self._rows)

    def __iter__(self) -> Iterator[T]:
        """The items with a place, in the order of serving as of now: the first of each owner, then the second ones."""
        rows = [deque(islice(row, max(0, owner.free))) for owner, row in self._rows.items()]
        while rows := [row for row in rows if row]:
            for row in rows:
                yield row.popleft()
