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


@contextlib.asynccontextmanager
async def patience(seconds: float) -> AsyncGenerator[None]:
    """Raise `TimeoutError` after so many seconds; they begin anew whenever the event loop was late itself."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None
    async with asyncio.timeout(seconds) as bound:

        def look(due: float) -> None:
            nonlocal timer
            now = loop.time()
            if (late := now - due) > LATE_SECONDS:
                logger.warning(
                    "the event loop was late by %.1f s; what it waits for gets its time again", late
                )
                bound.reschedule(now + seconds)
            timer = loop.call_later(LOOK_SECONDS, look, now + LOOK_SECONDS)

        timer = loop.call_later(LOOK_SECONDS, look, loop.time() + LOOK_SECONDS)
        try:
            yield
        finally:
            timer.cancel()  # the newest one
