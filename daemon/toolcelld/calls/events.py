"""The events that a session sends to its client, as values; `rpc.messages.encoding` alone knows their encoding.

`droppable` events may be discarded when the client does not read them; one gap event counts them. `urgent` events
wake the writer at once; the others wait a few milliseconds, so that all events of a quick call are one message.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from toolcelld.calls.outcomes.outcome import Outcome
from toolcelld.catalog.catalog import Catalog
from toolcelld.errors import Refusal


@dataclass(slots=True, kw_only=True)
class Event:
    """An event of a session. `number` is assigned when it is first sent."""

    droppable: ClassVar[bool] = False
    urgent: ClassVar[bool] = False
    number: int = 0
    time: float = field(default_factory=time.time)
    call_id: str = ""
    size_bytes: int = field(init=False, default=64, repr=False, compare=False)
    """About its size on the wire; measured when it is made, and again by code that changes it."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Find out the size, where that is not always the same."""


@dataclass(slots=True)
class CallAccepted(Event):
    queued: int


@dataclass(slots=True)
class CallStarted(Event):
    worker_id: str
    queue_seconds: float
    timeout_seconds: float  # 0 for none


@dataclass(slots=True)
class PartialResult(Event):
    """The partial result so far; with `more`, chunks follow."""

    droppable = True
    body: bytes
    more: bool = False

    def measure(self) -> None:
        self.size_bytes = 64 + len(self.body)


@dataclass(slots=True)
class ProgressMade(Event):
    droppable = True
    done: float
    total: float | None
    message: str

    def measure(self) -> None:
        self.size_bytes = 96 + _bytes(self.message)


@dataclass(slots=True)
class MetadataSet(Event):
    droppable = True
    title: str
    values: bytes

    def measure(self) -> None:
        self.size_bytes = 64 + _bytes(self.title) + len(self.values)


@dataclass(slots=True)
class LineLogged(Event):
    droppable = True
    level: str
    source: str
    text: str

    def measure(self) -> None:
        self.size_bytes = 64 + _bytes(self.text)


@dataclass(slots=True)
class QuestionAsked(Event):
    urgent = True
    ask_id: int
    question: Mapping[str, Any]
    details: bytes

    def measure(self) -> None:
        texts = [self.question["question"], self.question["permission"]]
        texts += [*self.question["patterns"], *self.question["always"]]
        self.size_bytes = 64 + len(self.details) + sum(_bytes(text) + 4 for text in texts)


@dataclass(slots=True)
class ServiceRequested(Event):
    urgent = True
    ask_id: int
    service: str
    arguments: bytes

    def measure(self) -> None:
        self.size_bytes = 64 + len(self.arguments) + _bytes(self.service)


@dataclass(slots=True, init=False)
class CallEnded(Event):
    """The call's outcome; `body` is the first part of its result; with `more`, chunks follow."""

    urgent = True
    outcome: Outcome
    body: bytes
    more: bool

    def __init__(
        self, outcome: Outcome, body: bytes, more: bool = False, *, call_id: str = "", number: int = 0
    ) -> None:  # written out, as each call has one: what makes it measures it
        self.outcome, self.body, self.more = outcome, body, more
        self.call_id, self.number, self.time = call_id, number, time.time()
        message = _bytes(outcome.message) if outcome.message else 0
        self.size_bytes = 512 + len(body) + message + len(outcome.metadata)


@dataclass(slots=True)
class Chunk(Event):
    urgent = True
    data: bytes
    last: bool

    def measure(self) -> None:
        self.size_bytes = 64 + len(self.data)


@dataclass(slots=True)
class CallRefused(Event):
    urgent = True
    refusal: Refusal

    def measure(self) -> None:
        self.size_bytes = 1024 + _bytes(self.refusal.message)


@dataclass(slots=True)
class EventsDropped(Event):
    count: int


@dataclass(slots=True)
class CatalogChanged(Event):
    urgent = True
    generation: int


@dataclass(slots=True)
class Moving(Event):
    """The session is to move to another node."""

    urgent = True
    reason: str
    deadline_seconds: float


@dataclass(slots=True)
class Published(Event):
    """The tools and problems of a catalog from one index to another."""

    urgent = True
    catalog: Catalog
    start: int
    end: int
    last: bool
    answers: bool = False  # a Refresh

    def measure(self) -> None:
        self.size_bytes = 48 * 1024


PUBLISHED_BYTES: Final = 40 * 1024
"""Of tools in one part of a catalog."""


def published(catalog: Catalog, *, answers: bool = False) -> list[Published]:
    """The catalog in parts; with `answers` they answer a Refresh."""
    parts: list[Published] = []
    start = size = 0
    tools = list(catalog.tools.values())
    for index, tool in enumerate(tools):
        size += 128 + len(tool.description) * 2 + len(tool.title) * 4 + len(tool.path)
        size += len(tool.input_schema) + len(tool.output_schema)
        if size > PUBLISHED_BYTES and index > start:
            parts.append(Published(catalog, start, index, last=False, answers=answers))
            start, size = index, 0
    parts.append(Published(catalog, start, len(tools), last=True, answers=answers))
    return parts


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


MESSAGE_BYTES: Final = 56 * 1024
"""What leaves together; a message of the contract has at most 64 KiB."""


PART_BYTES: Final = 40 * 1024
"""Of a body in one event: with what is around it, less than a message."""


def parts(call_id: str, outcome: Outcome, body: bytes) -> tuple[CallEnded, *tuple[Chunk, ...]]:
    """The outcome and the body of its result as events: one, or one with the body's beginning and the chunks of its rest."""
    ended = CallEnded(outcome, body, call_id=call_id)
    if len(body) <= PART_BYTES and ended.size_bytes <= MESSAGE_BYTES:
        return (ended,)
    first = min(PART_BYTES, max(0, MESSAGE_BYTES - (ended.size_bytes - len(body))))
    ended = CallEnded(outcome, body[:first], more=len(body) > first, call_id=call_id)
    rest = range(first, len(body), PART_BYTES)
    return ended, *(
        Chunk(body[start : start + PART_BYTES], last=start + PART_BYTES >= len(body), call_id=call_id)
        for start in rest
    )
