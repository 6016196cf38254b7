"""Clocks of a call: they run, pause while a question is open, and expire once; and the grace of one that is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["AbortEscalation", "IdleTimer", "PausableTimer"]

REMINDER_SECONDS: Final = 0.01
"""After an abort, and then in doubling steps: most tools have stopped by the first."""


class PausableTimer:
    """Expires after so many seconds of running; None never does."""

    __slots__ = ("_expired", "_loop", "_remaining", "_since", "_timer")

    def __init__(self, seconds: float | None, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._remaining = seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Go on."""
        if self._remaining is not None and self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(self._remaining, self._expire)

    def pause(self) -> None:
        """Stand still; what has run has run."""
        if self._timer is not None and self._remaining is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining = max(0.0, self._remaining - (self._loop.time() - self._since))

    def _expire(self) -> None:
        self._timer = self._remaining = None
        self._expired()


class IdleTimer:
    """Expires after so many seconds without a sign of life. A sign costs one look at the clock."""

    __slots__ = ("_expired", "_last", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float | None, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._seconds = seconds
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def sign(self) -> None:
        """Something was heard."""
        if self._seconds is not None:
            self._last = self._loop.time()

    def run(self) -> None:
        """Go on, from now."""
        if self._seconds is not None and self._timer is None:
            self._last = self._loop.time()
            self._timer = self._loop.call_later(self._seconds, self._look)

    def pause(self) -> None:
        """Stand still; silence meanwhile is none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        assert self._seconds is not None
        silent = self._loop.time() - self._last
        if silent >= self._seconds:
            self._seconds = None
            self._expired()
        else:
            self._timer = self._loop.call_later(self._seconds - silent, self._look)


class AbortEscalation:
    """What a tool has from its abort until its cell is ended. Meanwhile it is reminded, in doubling steps.

    A signal that comes just before a system call does not interrupt it, and the tool would sleep on.
    """

    __slots__ = ("_loop", "_over", "_remind", "_timer", "_until")

    def __init__(self, seconds: float, remind: Callable[[], object], over: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._remind = remind
        self._over = over
        self._until = self._loop.time() + seconds
        self._wait(REMINDER_SECONDS)

    def cancel(self) -> None:
        """It stopped by itself."""
        self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        left = max(0.0, self._until - self._loop.time())
        self._timer = self._loop.call_later(min(seconds, left), self._look, seconds)

    def _look(self, waited: float) -> None:
        if self._loop.time() >= self._until:
            self._over()
        else:
            self._remind()
            self._wait(2 * waited)
