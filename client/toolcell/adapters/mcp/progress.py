"""Progress as MCP wants it: every notification says more than the one before.

A tool may say the same again, or less, and a sign of life says nothing new at all. Both go out as the smallest step
upwards, which no person sees; a host that counts silence hears it.
"""

from __future__ import annotations

import math

__all__ = ["MonotonicProgress"]

STEP = 1e-6  # small against one file of many, and not lost in a sum of millions


class MonotonicProgress:
    """The progress of one request."""

    __slots__ = ("_last", "message", "total")

    def __init__(self) -> None:
        self._last: float | None = None
        self.total: float | None = None
        self.message = ""

    def report(self, done: float, total: float | None, message: str) -> float:
        """What the tool said; the figure to send."""
        self.message = message
        self.total = total if total is not None and math.isfinite(total) else None
        if math.isfinite(done) and (self._last is None or done > self._last):
            self._last = done
            return done
        return self.again()

    def again(self) -> float:
        """A figure for a sign of life."""
        if self._last is None:
            self._last = 0.0
        else:
            self._last = max(self._last + STEP, math.nextafter(self._last, math.inf))
        return self._last
