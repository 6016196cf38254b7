"""Ends its own process, or takes its channel from it."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from toolcell import tool

CHANNELS = range(4, 7)


@tool
def dies(how: str) -> str:
    """Die so."""
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    if how == "exits":
        os._exit(0)
    for number in CHANNELS:
        with contextlib.suppress(OSError):
            if how == "closes":
                os.close(number)
            elif how == "forges":
                os.write(number, b"Traceback (most recent call last):\n")
    if how == "closes":
        return "its result goes nowhere"
    time.sleep(20)
    return "survived"
