"""The events of a running call, and the buffer that holds them until they are read.

Events never block a tool, so unread ones must be dropped at some point.
`EventBuffer` keeps the newest within a bound, and counts the dropped ones in one Gap, which is read first.
An unbounded queue would let one verbose tool fill the agent's memory; a queue with backpressure would let one unread
call delay the outcomes of all others, which share its stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from .outcome import Block, Text

UNREAD_EVENTS_MAX = 1024  # a screenful of log lines many times over, and what a step of the loop brings
UNREAD_BYTES_MAX = 1024 * 1024  # as much as the daemon retains for a whole session


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has begun the call."""

    worker_id: str
    """The id of the worker."""
    queue_seconds: float
    """The time that the call waited for it."""


@dataclass(frozen=True, slots=True)
class Update:
    """The partial result so far, which replaces the previous one."""

    content: tuple[Block, ...]
    """The content, as in `Outcome.content`."""
    details: Any
    """Data for programs, as read from JSON; None if there is none."""

    @property
    def last_line(self) -> str:
        """The last line of its text, for a place that has one line; "" if it has no text."""
        text = "\n".join(block.text for block in self.content if isinstance(block, Text))
        return text.rstrip().rpartition("\n")[2]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the tool."""

    done: float
    """The steps done, in a unit of the tool's choice."""
    total: float | None
    """The steps in all, in the same unit; None if unknown."""
    message: str
    """One line for the user; "" if there is none."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The title of the call and new metadata, to merge over the earlier values."""

    title: str
    """The title; "" if it has not changed."""
    values: Mapping[str, Any]
    """The new JSON values."""


@dataclass(frozen=True, slots=True)
class Log:
    """A line that the tool logged, or a part of its printed output."""

    level: str
    """The level in lower case: "debug", "info", "warning" or "error"."""
    source: Literal["log", "stdout", "stderr"]
    """Where the text comes from."""
    text: str
    """The text; a part of a stream may end within a line."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Dropped events: they were not read in time."""

    count: int
    """How many were dropped."""


Event: TypeAlias = Started | Update | Progress | Metadata | Log | Gap


def to_dict(event: Event, **about: object) -> dict[str, Any]:
    """Return an event as the object that `toolcell call --events` prints; `about` stands before its attributes."""
    values: dict[str, Any] = {each.name: getattr(event, each.name) for each in fields(event)}
    if isinstance(event, Update):
        values["content"] = [block.to_dict() for block in event.content]
    return {"event": type(event).__name__.lower(), **about, **values}


class EventBuffer:
    """The unread events of one call: the newest of each type, and the number of dropped ones."""

    __slots__ = ("_bytes", "_events", "_lost")

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._lost = 0

    def put(self, event: Event, size_bytes: int) -> None:
        """Add an event; a full buffer drops the oldest event, of the same type if there is one."""
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
        """Remove and return the next event, None if there is none; a Gap comes first."""
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
