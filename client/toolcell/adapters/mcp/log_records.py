"""The log records of one call on their way to a host: of the level that it wants, the newest within a bound.

A tool may log faster than a host reads. It is not held up for that: the oldest records are dropped, and counted.
Printed output is no log record; the daemon's own log has both.
"""

from __future__ import annotations

from collections import deque
from typing import Final, get_args

from mcp import types

from toolcell.client import Log

from .stdio import wire

DEFAULT_LEVEL: Final[types.LoggingLevel] = "info"
"""What a host gets that shook hands and has set no level."""
RECORDS_MAX: Final = 256
"""Of one call; a record has at most 16 KiB."""
LEVELS: Final[tuple[types.LoggingLevel, ...]] = wire.LEVELS
assert set(LEVELS) == set(get_args(types.LoggingLevel))


def level_of(level: object) -> types.LoggingLevel | None:
    """A level of MCP; None for anything else."""
    return next((each for each in LEVELS if each == level), None)


def is_wanted(level: types.LoggingLevel, wanted: types.LoggingLevel | None) -> bool:
    """Whether a host wants a record of that level; `wanted` is the least level, None for no record at all."""
    return wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted)


class LogRecords:
    """The records of one call that were not sent yet."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._kept: deque[tuple[types.LoggingLevel, str]] = deque()
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def put(self, record: Log, wanted: types.LoggingLevel | None) -> bool:
        """Keep a record of a level that is wanted, or of a higher one; None wants none. Return whether it was kept."""
        level = level_of(record.level) or "info"
        if record.source != "log" or not is_wanted(level, wanted):
            return False
        if len(self._kept) == RECORDS_MAX:
            self._kept.popleft()
            self._dropped += 1
        self._kept.append((level, record.text))
        return True

    def take(self) -> list[types.LoggingMessageNotificationParams]:
        """Remove and return all of them; the first one says how many were dropped before them."""
        told = [self._said(level, text) for level, text in self._kept]
        if self._dropped:
            lost = f"{self._dropped} records were dropped: the tool logged faster than they were read."
            told.insert(0, self._said("warning", lost))
        self._kept.clear()
        self._dropped = 0
        return told

    def _said(self, level: types.LoggingLevel, text: str) -> types.LoggingMessageNotificationParams:
        return types.LoggingMessageNotificationParams(level=level, logger=self._tool, data=text)
