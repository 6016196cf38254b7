"""Takes the timers and queued signals that all programs of the user share."""

import ctypes
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)

CLOCK_MONOTONIC = 1


@tool
def take_timers(target: dict[str, Any]) -> str:
    timer = ctypes.c_void_p()
    for _ in range(5000):
        checked(libc.timer_create(CLOCK_MONOTONIC, None, ctypes.byref(timer)))
    return "it has thousands"
