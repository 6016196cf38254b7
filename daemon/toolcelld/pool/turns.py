"""A queue in which owners take turns: nobody waits behind more than one item of each other owner at a time.

Items of one owner keep their order. Whoever serves an item says so, and its owner goes behind all
others; so a session that asks for a thousand workers delays another one's first call by one call.
A place that is given up vanishes. Order of arrival alone would serve the thousand first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


class Turns(Generic[T]):
    """What waits, by owner; the owner whose turn it is comes first."""

    __slots__ = ("_count", "_rows")

    def __init__(self) -> None:
        self._rows: dict[str, dict[T, None]] = {}
        self._count = 0

    def add(self, owner: str, item: T) -> None:
        """Queue an item; an owner that had none goes behind all others."""
        self._rows.setdefault(owner, {})[item] = None
        self._count += 1

    def serve(self, owner: str, item: T) -> None:
        """Take an item that gets what it waited for; its owner's next turn comes after everybody else's."""
        self.remove(owner, item)
        if (row := self._rows.pop(owner, None)) is not None:
            self._rows[owner] = row

    def remove(self, owner: str, item: T) -> None:
        """Take an item that waits no more; its owner keeps its turn. Raises `KeyError` when it is not there."""
        row = self._rows[owner]
        del row[item]
        self._count -= 1
        if not row:
            del self._rows[owner]

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._count = 0

    def __contains__(self, place: tuple[str, T]) -> bool:
        owner, item = place
        return item in self._rows.get(owner, ())

    def __iter__(self) -> Iterator[T]:
        """As they are to be served, as of now: the first of each owner in turn, then their second ones."""
        rows = [deque(row) for row in self._rows.values()]
        while rows:
            for row in rows:
                yield row.popleft()
            rows = [row for row in rows if row]

    def __len__(self) -> int:
        return self._count
