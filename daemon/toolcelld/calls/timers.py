"""The timers of calls, which pause while a question is open, the escalation of an abort, and how fast messages are taken."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolcelld.calls.call import Call

WINDOW_SECONDS: Final = 0.02
UNITS_MAX: Final = 128
"""Of one session in a window: a fifteenth of the loop's time."""
UNIT_BYTES: Final = 4096
"""Of JSON that is parsed or written for a message."""
REMINDER_SECONDS: Final = 0.01
"""Until the abort signal is repeated for the first time; the interval then doubles."""


class Deadlines:
    """When the timeouts of a session's calls are over, with one timer of the loop for all of them.

    Nearly every call ends long before. So a call takes an entry of a table, and only an earlier deadline than all others
    sets the timer anew: to set and to stop one for each call takes 8,000 instructions of it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The mutable state: the calls whose clock runs, each with the loop's time of its end, and the timer.
        self.due: dict[Call, float] = {}
        self.earliest = math.inf  # when the timer goes off; no call is due before that
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, due: float) -> None:
        """Have the timer go off then, which is earlier than it would."""
        self.close()
        self._timer, self.earliest = self._loop.call_at(due, self._look), due

    def close(self) -> None:
        """Stop the timer: there is no call any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.earliest = None, math.inf

    def _look(self) -> None:
        self.close()
        now = self._loop.time()
        try:
            for call in [call for call, due in self.due.items() if due <= now]:
                if self.due.pop(call, None) is not None:  # the end of another one has not ended it
                    call.timed_out()
        finally:  # a look that fails must not be the last one
            if self.due and (earliest := min(self.due.values())) < self.earliest:
                self.schedule(earliest)


class PausableTimer:
    """Calls `expired` after a number of seconds of running; None never does."""

    __slots__ = ("_expired", "_loop", "_remaining", "_since", "_timer")

    def __init__(self, seconds: float | None, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._remaining = seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Start or continue."""
        if self._remaining is not None and self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(self._remaining, self._expire)

    def pause(self) -> None:
        """Pause, keeping the time that has passed."""
        if self._timer is not None and self._remaining is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining = max(0.0, self._remaining - (self._loop.time() - self._since))

    def end(self) -> None:
        """Stop for good, and keep nothing of who would have been called."""
        self.pause()
        self._remaining = None
        self._expired = _nothing

    def _expire(self) -> None:
        self._timer = self._remaining = None
        self._expired()


class IdleTimer:
    """Expires after a number of seconds without activity. Recording activity only reads the clock."""

    __slots__ = ("_expired", "_last", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float | None, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._seconds = seconds
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def sign(self) -> None:
        """Record activity."""
        if self._seconds is not None:
            self._last = self._loop.time()

    def run(self) -> None:
        """Start again from zero."""
        if self._seconds is not None and self._timer is None:
            self._last = self._loop.time()
            self._timer = self._loop.call_later(self._seconds, self._look)

    def pause(self) -> None:
        """Pause; time without activity does not count meanwhile."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Stop for good, and keep nothing of who would have been called."""
        self.pause()
        self._seconds = None
        self._expired = _nothing

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

    __slots__ = ("_loop", "_over", "_resend_abort", "_timer", "_until")

    def __init__(
        self, seconds: float, resend_abort: Callable[[], object], over: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._resend_abort = resend_abort
        self._over = over
        self._until = self._loop.time() + seconds
        self._wait(REMINDER_SECONDS)

    def end(self) -> None:
        """Stop the escalation, and keep nothing of who would have been called."""
        self._timer.cancel()
        self._resend_abort = self._over = _nothing

    def _wait(self, seconds: float) -> None:
        left = max(0.0, self._until - self._loop.time())
        self._timer = self._loop.call_later(min(seconds, left), self._look, seconds)

    def _look(self, waited: float) -> None:
        if self._loop.time() >= self._until:
            self._over()
        else:
            self._resend_abort()
            self._wait(2 * waited)


def _nothing() -> None:
    """What a timer calls after its end."""


class MessageAllowance:
    """What the messages of a session's calls may cost, so that tools that send without a pause do not slow others.

    A message costs units, about ten microseconds of the loop each. Who has spent the units of a window waits until they
    are earned: the daemon stops reading, and the tool's writes block. Nothing is lost by it. Workers send at most four
    messages in a window (`worker.channel`), so only a tool that writes frames itself, or logs thousands of lines, waits.
    """

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
