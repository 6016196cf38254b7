"""How long a session of another machine goes on without a word of its client.

The machine of the calls ends them, by its own clock, so that a client which was given the session up for lost elsewhere
knows when at the latest they have ended. The clock counts while the machine sleeps, and while the daemon is stopped: the
first thing that happens after that is the look at the lease, and a word that had waited in a socket comes too late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

LOOKS: Final = 3
"""In the time of a lease, so that a sleep of the machine, which delays timers, is noticed in a third of it."""


def clock() -> float:
    """Return seconds that only go forward, also while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of one session, from its creation.

    Args:
        seconds: How long it lasts after each word of the client.
        expires: Unix time at which it is over in any case.
        over: Called once, when it is over.
    """

    __slots__ = ("_held", "_over", "_timer", "_until", "expires", "seconds")

    def __init__(self, seconds: float, expires: float, over: Callable[[], object]) -> None:
        self.seconds = seconds
        self.expires = expires
        self._over = over
        self._held = False
        self._until = clock() + seconds
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def renew(self) -> None:
        """Note a word of the client. One that comes when the lease is over ends it at once."""
        if self._timer is not None and not self._ended():
            self._until = clock() + self.seconds

    def hold(self) -> None:
        """Take the client's connection for its word: of a single call, whose client has nothing to say meanwhile."""
        self._held = True

    def end(self) -> None:
        """Forget it: nobody is told any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ended(self) -> bool:
        if clock() < self._until and time.time() < self.expires:
            return False
        self.end()
        self._over()
        return True

    def _look(self) -> None:
        if self._ended():
            return
        if self._held:
            self._until = clock() + self.seconds
        left = max(self._until - clock(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(min(left, self.seconds / LOOKS), self._look)
