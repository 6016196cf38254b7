"""Ignores every signal that can be ignored, and every exception."""

import contextlib
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def ignore_everything(target: dict[str, Any]) -> str:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            time.sleep(0.1)
    return "unstopped"
