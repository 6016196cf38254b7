"""Leaves a timer that continues the worker when the daemon stops it, and works in the signal's handler.

The handler is one of C: those of Python are put back after a call.
"""

import ctypes
import signal
import struct
import time
from typing import Any

from _after import work
from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)

CLOCK_MONOTONIC = 1
SIGEV_SIGNAL = 0
AFTER_SECONDS = 0.4


def go_on(_: int) -> None:
    work(3.0)


IN_C = ctypes.CFUNCTYPE(None, ctypes.c_int)(go_on)


@tool
def wake_itself(target: dict[str, Any]) -> str:
    libc.signal(signal.SIGCONT, IN_C)
    timer = ctypes.c_void_p()
    event = struct.pack("=Qii48x", 0, signal.SIGCONT, SIGEV_SIGNAL)
    checked(libc.timer_create(CLOCK_MONOTONIC, event, ctypes.byref(timer)))
    first = struct.pack("=qqqq", 0, 0, 0, int(AFTER_SECONDS * 1e9))
    checked(libc.timer_settime(timer, 0, first, None))
    return f"done at {time.monotonic()}"
