"""Summaries of ended calls for operators, bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from sys import getsizeof
from typing import Final, NamedTuple

from toolcelld.calls.outcome import Outcome

__all__ = ["CallHistory", "CallSummary"]

CALLS_MAX: Final = 1000
BYTES_MAX: Final = 4 * 1024 * 1024
"""A summary takes about 2 KiB, and up to 50 KiB with a long message and much metadata."""
VALUES_BYTES: Final = 1024
"""The tuples and numbers of one summary with its outcome and its facts; measured 700 to 900."""
LINE_BYTES: Final = 144
"""The tuples and the time of one line of the story."""
OUTPUT_BYTES: Final = 1024
"""One reference to a kept output."""


class CallSummary(NamedTuple):
    """A call at one moment, without its arguments and without the body of its result."""

    call_id: str
    session_id: str
    tool: str
    path: str
    state: str  # as the contract names it
    worker_id: str
    agent: str
    agent_name: str
    directory: str
    agent_session_id: str
    message_id: str
    accepted_at: float
    outcome: Outcome | None
    story: tuple[tuple[float, str], ...]

    @property
    def size_bytes(self) -> int:
        """Its memory in bytes; texts that are shared with other summaries count in full."""
        size = VALUES_BYTES + sum(map(getsizeof, self[:TEXTS]))
        size += LINE_BYTES * len(self.story) + sum(map(getsizeof, map(itemgetter(1), self.story)))
        if (outcome := self.outcome) is not None:
            size += getsizeof(outcome.message) + len(outcome.metadata)
            size += OUTPUT_BYTES * (1 + len(outcome.facts.logs))
        return size


TEXTS: Final = CallSummary._fields.index("accepted_at")
"""The number of leading text fields."""


class CallHistory:
    """The newest ended calls of all sessions.

    Args:
        calls_max: how many summaries are kept.
        bytes_max: how much memory they take together; beyond it the oldest ones go.
    """

    def __init__(self, calls_max: int = CALLS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        # The mutable state, the newest last, each with its size.
        self._kept: deque[tuple[CallSummary, int]] = deque()
        self.size_bytes = 0
        self.added = 0

    def add(self, call: CallSummary, size_bytes: int) -> None:
        """Add an ended call and drop the oldest ones beyond the bounds."""
        self.added += 1
        self._kept.append((call, size_bytes))
        self.size_bytes += size_bytes
        while len(self._kept) > self._calls_max or self.size_bytes > self._bytes_max:
            self.size_bytes -= self._kept.popleft()[1]

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[CallSummary]:
        """Iterate, the newest first."""
        return (call for call, _ in reversed(self._kept))
