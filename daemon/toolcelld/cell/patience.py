"""A time limit for another process that does not count the time in which this one was late.

When the event loop was kept from running, an answer can have been there all the while, unread: a limit that has passed
meanwhile says nothing of the process that answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Final

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 1.0
"""A timer that fires so much too late; on a machine with twenty processes for each processor they are late by tenths."""


class _LoopWatch:
    """Looks whether the event loop is late, until it is stopped.

    A function that schedules itself would be a cycle with all that it refers to: the time limit, and so its task.
    """

    def __init__(self, bound: asyncio.Timeout, seconds: float) -> None:
        self._bound, self._seconds = bound, seconds
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def _schedule(self) -> None:
        due = self._loop.time() + LOOK_SECONDS
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look, due)

    def _look(self, due: float) -> None:
        now = self._loop.time()
        if (late := now - due) > LATE_SECONDS:
            logger.warning("the event loop was late by %.1f s; what it waits for gets its time again", late)
            self._bound.reschedule(now + self._seconds)
        self._schedule()

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()


@contextlib.asynccontextmanager
async def patience(seconds: float) -> AsyncGenerator[None]:
    """Raise `TimeoutError` after so many seconds; they begin anew whenever the event loop was late itself."""
    async with asyncio.timeout(seconds) as bound:
        watch = _LoopWatch(bound, seconds)
        try:
            yield
        finally:
            watch.stop()
