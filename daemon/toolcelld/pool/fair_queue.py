"""A fair queue: owners take turns, and each has at most as many items served at once as it has places.

Items of one owner keep their order. An item that is offered gets the number of a round: the one after its owner's
previous item, or the current one for an owner that had none (start-time fair queuing). So a session that asks for a
thousand workers delays another one's first call by one call; order of arrival alone would serve the thousand first.
In each round the owners have the same order. An item that waits for a place of its owner is not offered: only the first
items of an owner are, as many as it has free places.

What is offered is kept in lanes, of items that can be served by the same thing, each in the order of serving. Serving
needs the first items of the lanes only, so an event costs as much as there are lanes and not as much as items wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

L = TypeVar("L", bound=Hashable)
T = TypeVar("T")


class Places:
    """How many items of one owner may be served at once.

    Args:
        places: the number of places, all of them free.
    """

    __slots__ = ("free", "rank", "row", "served", "waiting")

    def __init__(self, places: int) -> None:
        # The mutable state. `free` is below zero while places that were given up for a question are taken back.
        self.free = places
        # Only the queue sets these.
        self.waiting = 0  # items in the queue
        self.served = 0  # the round of the last item served
        self.rank = 0  # its place in a round
        self.row: _Row[Any, Any] | None = None  # while items wait

    @property
    def queued(self) -> int:
        """The items that wait for a place."""
        return max(0, self.waiting - max(0, self.free))

    def take(self) -> None:
        """Take a place, also where that makes one too many."""
        self.free -= 1
        if self.row is not None:
            self.row.fit(self.free)

    def give(self) -> None:
        """Give a place back."""
        self.free += 1
        if self.row is not None:
            self.row.fit(self.free)


class PlacedItem(NamedTuple, Generic[T]):
    """An item that has a place of its owner; ordered as offers are to be served."""

    round: int
    rank: int  # of the owner
    number: int  # the order in which items were added: no two offers are equal
    item: T


class _Row(Generic[L, T]):
    """The items of one owner: those with a place, and those without, each in the order in which they were added."""

    __slots__ = ("_owner", "_queue", "offered", "pending")

    def __init__(self, queue: FairQueue[L, T], owner: Places) -> None:
        self._queue = queue
        self._owner = owner
        self.offered: OrderedDict[T, tuple[L, PlacedItem[T]]] = OrderedDict()
        self.pending: OrderedDict[T, tuple[L, int]] = OrderedDict()

    def fit(self, free: int) -> None:
        """Offer as many items as there are free places."""
        while self.pending and len(self.offered) < free:
            item, (lane, number) = self.pending.popitem(last=False)
            last = self.offered[next(reversed(self.offered))][1].round if self.offered else self._owner.served
            self.offered[item] = lane, self._queue.offer(self._owner, lane, last + 1, number, item)
        while len(self.offered) > max(0, free):
            item, (lane, offer) = self.offered.popitem()
            self._queue.recall(lane, offer)
            self.pending[item] = lane, offer.number
            self.pending.move_to_end(item, last=False)

    def remove(self, item: T) -> int:
        """Remove an item; return its round, 0 where it had none."""
        if item in self.pending:
            del self.pending[item]
            return 0
        lane, offer = self.offered.pop(item)
        self._queue.recall(lane, offer)
        return offer.round


class FairQueue(Generic[L, T]):
    """Items that wait, by owner and by lane; the owner whose turn it is comes first."""

    __slots__ = ("_added", "_lanes", "_owners", "_round", "count", "offered")

    def __init__(self) -> None:
        # The mutable state: the owners that have items, the offers by lane, and the current round.
        self._owners: dict[Places, _Row[L, T]] = {}
        self._lanes: dict[L, list[PlacedItem[T]]] = {}
        self._round = 1
        self._added = 0
        self.count = 0
        """How many items there are, also those that wait for a place of their owner."""
        self.offered = 0
        """How many items `__iter__` has."""

    @property
    def lanes(self) -> Mapping[L, Sequence[PlacedItem[T]]]:
        """The offers of each lane that has some, in the order of serving."""
        return self._lanes

    def add(self, owner: Places, item: T, lane: L) -> None:
        """Queue an item; an owner that had none goes behind all others."""
        if (row := self._owners.get(owner)) is None:
            row = owner.row = self._owners[owner] = _Row(self, owner)
        self._added += 1
        row.pending[item] = lane, self._added
        self.count += 1
        owner.waiting += 1
        row.fit(owner.free)

    def serve(self, owner: Places, item: T) -> None:
        """Remove an item that gets what it waited for; its owner goes behind all others, and has a place less."""
        owner.free -= 1
        owner.served = self._remove(owner, item)
        self._round = max(self._round, owner.served)

    def remove(self, owner: Places, item: T) -> None:
        """Remove an item that waits no more. Raises `KeyError` when it is not there."""
        self._remove(owner, item)

    def _remove(self, owner: Places, item: T) -> int:
        row = self._owners[owner]
        served = row.remove(item)
        self.count -= 1
        owner.waiting -= 1
        if not owner.waiting:
            owner.row = None
            del self._owners[owner]
        else:
            row.fit(owner.free)
        return served

    def has_place(self, owner: Places, item: T) -> bool:
        """Whether an item waits, and not for a place of its owner."""
        row = self._owners.get(owner)
        return row is not None and item in row.offered

    @property
    def all(self) -> list[T]:
        """Every item, also those that wait for a place of their owner."""
        return [item for row in self._owners.values() for item in (*row.offered, *row.pending)]

    def __iter__(self) -> Iterator[T]:
        """The items with a place, in the order of serving as of now."""
        return (offer.item for offer in heapq.merge(*map(list, self._lanes.values())))

    # Called by the rows

    def offer(self, owner: Places, lane: L, earliest: int, number: int, item: T) -> PlacedItem[T]:
        """Put an item into its lane, in its owner's next round or in the current one if that is later."""
        if not owner.rank or earliest < self._round:
            owner.rank = number
        offer = PlacedItem(max(self._round, earliest), owner.rank, number, item)
        insort(self._lanes.setdefault(lane, []), offer)
        self.offered += 1
        return offer

    def recall(self, lane: L, offer: PlacedItem[T]) -> None:
        """Take an item out of its lane."""
        offers = self._lanes[lane]
        del offers[bisect_left(offers, offer)]
        self.offered -= 1
        if not offers:
            del self._lanes[lane]
