"""What a running call says before it ends, and where that waits until somebody reads it.

Telling never blocks a tool, so what nobody reads must be able to go.
`EventBuffer` holds the newest of it within a bound, and counts the rest into one Gap, which is read first.
A queue without a bound would let one talkative tool fill the agent's memory; a queue that makes the sender wait
would let one forgotten call hold up the outcomes of all others, which share its stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .outcome import Block

__all__ = ["Event", "EventBuffer", "Gap", "Log", "Metadata", "Progress", "Started", "Update"]

UNREAD_EVENTS_MAX = 1024  # a screenful of log lines many times over, and what a step of the loop brings
UNREAD_BYTES_MAX = 1024 * 1024  # as much as the daemon retains for a whole session


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has the call."""

    worker_id: str
    queue_seconds: float


@dataclass(frozen=True, slots=True)
class Update:
    """The partial result so far; replaces the one before."""

    content: tuple[Block, ...]
    details: Any


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the tool is, in its own unit."""

    done: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """A title and values, merged over the call."""

    title: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """A line that the tool logged, or a piece that it printed."""

    level: str
    source: Literal["log", "stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that had to go because nobody read them."""

    count: int


Event: TypeAlias = Started | Update | Progress | Metadata | Log | Gap


class EventBuffer:
    """The events of one call that nobody has read yet: the newest of each sort, and a count of what went."""

    __slots__ = ("_bytes", "_events", "_lost")

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._lost = 0

    def put(self, event: Event, size_bytes: int) -> None:
        """Keep an event; where there is no room, an older one goes, of its own sort if there is one."""
        if isinstance(event, Gap):
            self._lost += event.count
            return
        while self._events and (
            len(self._events) >= UNREAD_EVENTS_MAX or self._bytes + size_bytes > UNREAD_BYTES_MAX
        ):
            self._drop(type(event))
        self._events.append((event, size_bytes))
        self._bytes += size_bytes

    def take(self) -> Event | None:
        """The next event; first of all the Gap, if anything went."""
        if self._lost:
            gap, self._lost = Gap(self._lost), 0
            return gap
        if not self._events:
            return None
        event, size_bytes = self._events.popleft()
        self._bytes -= size_bytes
        return event

    def _drop(self, sort: type[Event]) -> None:
        oldest = next((place for place, (event, _) in enumerate(self._events) if isinstance(event, sort)), 0)
        self._bytes -= self._events[oldest][1]
        del self._events[oldest]
        self._lost += 1
