"""How fast the messages of one call are taken, so that a tool that sends without a pause does not slow its neighbours.

A message costs units, about ten microseconds of the loop each. Who has spent the units of a window waits until they
are earned: the daemon stops reading, and the tool's writes block. Nothing is lost by it. Workers send at most four
messages in a window (`worker.channel`), so only a tool that writes frames itself, or logs thousands of lines, waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["UNITS_MAX", "UNIT_BYTES", "WINDOW_SECONDS", "MessageAllowance"]

WINDOW_SECONDS: Final = 0.02
UNITS_MAX: Final = 128
"""Of one call in a window: a fifteenth of the loop's time."""
UNIT_BYTES: Final = 4096
"""Of JSON that is parsed or written for a message."""


class MessageAllowance:
    """The units of one call."""

    __slots__ = ("_loop", "_spent", "_start")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._spent = 0

    def spend(self, units: int) -> float:
        """Spend units, and return the seconds until they are earned; zero within the allowance."""
        self._spent += units
        if self._spent < UNITS_MAX:
            return 0.0
        now = self._loop.time()
        earned = self._start + WINDOW_SECONDS * self._spent / UNITS_MAX
        self._start, self._spent = max(now, earned), 0
        return max(0.0, earned - now)
