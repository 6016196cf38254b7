"""The nodes, what they offer and how full they are, and which one a session gets.

Nodes that offer the same are a kind. A request looks at the kinds that offer what it needs, and in each at the emptiest node,
which is the first of a heap; so its time grows with the kinds, and hardly with the nodes. An entry of a heap is not changed:
a newer one is added, and the older one is dropped when it comes up.

It computes, and neither reads a clock nor waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

NAMED_MAX: Final = 8
"""Nodes of which a refusal says why they were not taken."""
TRIES: Final = 8
"""Of the emptiest nodes of a kind, before the one with the most of a resource is taken."""
STALE_MAX: Final = 4
"""Entries of a heap for each node, beyond which it is made anew."""

CLOSED: Final = "takes no new sessions"
SILENT: Final = "does not answer"

Tag: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with a daemon that listens."""

    name: str  # what its certificate is for
    address: str  # HOST:PORT
    volumes: Mapping[str, str]  # where the directories lie there, by name
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    sessions_max: int = 100

    @property
    def tags(self) -> frozenset[Tag]:
        """What a request may ask of it, apart from amounts."""
        volumes = {("volume", name) for name in self.volumes}
        labels = {(f"label {key}", value) for key, value in self.labels.items()}
        return frozenset({*volumes, *labels, *(("resource", name) for name in self.resources)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a session needs of its node."""

    volume: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def tags(self) -> set[Tag]:
        """The tags that its node has to have."""
        labels = {(f"label {key}", value) for key, value in self.labels.items()}
        return {("volume", self.volume), *labels, *(("resource", name) for name in self.resources)}


class _Shelf:
    """A node, and what is taken of it."""

    __slots__ = ("kind", "node", "open", "others", "sessions", "taken", "why_closed")

    def __init__(self, node: Node, kind: _NodeKind) -> None:
        self.node = node
        self.kind = kind
        self.open = False  # whether new sessions may be placed there
        self.why_closed = SILENT
        self.sessions = 0
        self.taken: dict[str, float] = {}  # by sessions
        self.others: Mapping[str, float] = {}  # what else the engine has given away

    def free(self, name: str) -> float:
        return self.node.resources.get(name, 0.0) - self.taken.get(name, 0.0) - self.others.get(name, 0.0)

    def __lt__(self, other: object) -> bool:
        return id(self) < id(other)  # a heap may have an old one of the same node

    @property
    def load(self) -> float:
        return self.sessions / self.node.sessions_max

    def fault(self, needs: Needs) -> str:
        """Why it cannot take a session; empty if it can."""
        node = self.node
        if needs.volume not in node.volumes:
            return f"has no volume {needs.volume}"
        for key, value in needs.labels.items():
            if node.labels.get(key) != value:
                return f"has {key} = {node.labels.get(key, 'nothing')}"
        for name, amount in needs.resources.items():
            if self.free(name) < amount:
                return f"has {max(self.free(name), 0.0):g} of {name} free"
        if self.sessions >= node.sessions_max:
            return f"has {self.sessions} sessions, which is its limit"
        return "" if self.open else self.why_closed


class _NodeKind:
    """The nodes that offer the same."""

    def __init__(self, tags: frozenset[Tag]) -> None:
        self.tags = tags
        self.shelves: set[_Shelf] = set()
        self._heap: list[tuple[float, str, _Shelf]] = []
        self._most: dict[str, list[tuple[float, str, _Shelf]]] = {}

    def changed(self, shelf: _Shelf) -> None:
        """Note what is taken of a node now."""
        if not shelf.open:
            return
        self._push(self._heap, (shelf.load, shelf.node.name, shelf))
        for name in shelf.node.resources:
            self._push(self._most.setdefault(name, []), (-shelf.free(name), shelf.node.name, shelf))

    def _push(self, heap: list[tuple[float, str, _Shelf]], entry: tuple[float, str, _Shelf]) -> None:
        heappush(heap, entry)
        if len(heap) > STALE_MAX * len(self.shelves) + STALE_MAX:
            rows = [each for each in set(heap) if self._is_current(heap, each)]
            heap[:] = rows
            heapify(heap)

    def _is_current(self, heap: list[tuple[float, str, _Shelf]], entry: tuple[float, str, _Shelf]) -> bool:
        shelf = entry[2]
        if not shelf.open or shelf not in self.shelves:
            return False
        if heap is self._heap:
            return entry[0] == shelf.load
        name = next(name for name, each in self._most.items() if each is heap)
        return entry[0] == -shelf.free(name)

    def best(self, needs: Needs, without: str) -> _Shelf | None:
        """Return the emptiest node that fits, of the first ones; else one that has the most of what is needed."""
        if found := self._first(self._heap, needs, without):
            return found
        for name in needs.resources:
            if found := self._first(self._most.get(name, []), needs, without):
                return found
        if len(needs.resources) > 1:
            fit = [each for each in self.shelves if each.node.name != without and not each.fault(needs)]
            return min(fit, key=lambda each: (each.load, each.node.name), default=None)
        return None

    def _first(self, heap: list[tuple[float, str, _Shelf]], needs: Needs, without: str) -> _Shelf | None:
        aside: list[tuple[float, str, _Shelf]] = []
        found: _Shelf | None = None
        while heap and found is None and len(aside) < TRIES:
            entry = heap[0]
            if not self._is_current(heap, entry):
                heappop(heap)
            elif entry[1] == without or entry[2].fault(needs):
                aside.append(heappop(heap))
            else:
                found = entry[2]
        for entry in aside:
            heappush(heap, entry)
        return found


class Inventory:
    """All nodes."""

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._kinds: dict[frozenset[Tag], _NodeKind] = {}
        self._by_tag: dict[Tag, set[_NodeKind]] = {}
        self._silent: set[str] = (
            set()
        )  # the names of those that do not answer, so that not all are looked at for them

    def put(self, node: Node) -> None:
        """Add a node, which takes no sessions before it is opened; or replace what is known of one, which keeps its
        sessions."""
        old = self._shelves.get(node.name)
        if old is not None:
            self._take_off(old)
        kind = self._kinds.get(node.tags)
        if kind is None:
            kind = self._kinds[node.tags] = _NodeKind(node.tags)
            for tag in node.tags:
                self._by_tag.setdefault(tag, set()).add(kind)
        shelf = self._shelves[node.name] = _Shelf(node, kind)
        kind.shelves.add(shelf)
        if old is not None:
            shelf.open, shelf.why_closed, shelf.sessions, shelf.taken, shelf.others = (
                old.open,
                old.why_closed,
                old.sessions,
                old.taken,
                old.others,
            )
            kind.changed(shelf)
        else:
            self._silent.add(node.name)

    def remove(self, name: str) -> None:
        """Forget a node, which has no sessions."""
        self._take_off(self._shelves.pop(name))
        self._silent.discard(name)

    def _take_off(self, shelf: _Shelf) -> None:
        kind = shelf.kind
        kind.shelves.discard(shelf)
        if not kind.shelves:
            del self._kinds[kind.tags]
            for tag in kind.tags:
                self._by_tag[tag].discard(kind)
                if not self._by_tag[tag]:
                    del self._by_tag[tag]

    def __iter__(self) -> Iterator[Node]:
        return (shelf.node for shelf in self._shelves.values())

    def __contains__(self, name: str) -> bool:
        return name in self._shelves

    def node(self, name: str) -> Node:
        """Return a node. Raises KeyError."""
        return self._shelves[name].node

    def sessions(self, name: str) -> int:
        """Return how many sessions are placed on a node."""
        return self._shelves[name].sessions

    def is_open(self, name: str) -> bool:
        """Return whether new sessions may be placed on a node."""
        return self._shelves[name].open

    def set_open(self, name: str, *, is_open: bool, why: str = CLOSED) -> None:
        """Have a node take new sessions, or no more, and why not."""
        shelf = self._shelves[name]
        shelf.why_closed = why
        (self._silent.discard if is_open or why != SILENT else self._silent.add)(name)
        if shelf.open != is_open:
            shelf.open = is_open
            shelf.kind.changed(shelf)

    def set_others(self, name: str, resources: Mapping[str, float]) -> None:
        """Note how much of a node's resources the engine has given to other work than sessions."""
        shelf = self._shelves[name]
        if shelf.others != resources:
            shelf.others = resources
            shelf.kind.changed(shelf)

    def take(self, name: str, resources: Mapping[str, float]) -> None:
        """Count a session on a node."""
        self._move(name, 1, resources)

    def give_back(self, name: str, resources: Mapping[str, float]) -> None:
        """Count a session no more."""
        self._move(name, -1, resources)

    def _move(self, name: str, sessions: int, resources: Mapping[str, float]) -> None:
        shelf = self._shelves[name]
        shelf.sessions += sessions
        for resource, amount in resources.items():
            shelf.taken[resource] = shelf.taken.get(resource, 0.0) + sessions * amount
            if not shelf.taken[resource]:
                del shelf.taken[resource]
        shelf.kind.changed(shelf)

    def choose(self, needs: Needs, *, without: str = "") -> Node | None:
        """Return the emptiest node that has what is needed, or None."""
        tags = needs.tags
        known = [self._by_tag.get(tag) for tag in tags]
        kinds = min((each or set() for each in known), key=len)
        fit = (kind.best(needs, without) for kind in kinds if tags <= kind.tags)
        shelf = min(filter(None, fit), key=lambda found: (found.load, found.node.name), default=None)
        return shelf.node if shelf is not None else None

    def fault(self, name: str, needs: Needs) -> str:
        """Return why a node cannot take a session; empty if it can."""
        return self._shelves[name].fault(needs)

    def silent(self, needs: Needs) -> Iterator[str]:
        """Return the nodes that do not answer, and could take a session if they did."""
        return (name for name in self._silent if self._shelves[name].fault(needs) == SILENT)

    def faults(self, needs: Needs, *, without: str = "") -> str:
        """Return why none of the nodes was chosen, for people: a line for each of the first ones."""
        lines: list[str] = []
        for shelf in self._shelves.values():
            if len(lines) == NAMED_MAX:
                lines.append(f"  and {len(self._shelves) - NAMED_MAX} more nodes")
                break
            name = shelf.node.name
            why = shelf.fault(needs) or ("has just been lost" if name == without else "could take it now")
            lines.append(f"  {name} {why}")
        return "\n".join(lines) or "  no node is known"
