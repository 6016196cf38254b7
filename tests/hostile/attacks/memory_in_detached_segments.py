"""Exceeds its memory limit with System V segments that no process has attached when it is measured."""

import ctypes
import signal
import time
from pathlib import Path
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)

SEGMENT_BYTES = 4 * 2**20


@tool
def memory_in_detached_segments(target: dict[str, Any]) -> str:
    libc.shmat.restype = ctypes.c_void_p
    segments: list[int] = []
    try:
        for _ in range(40):
            segments.append(checked(libc.shmget(0, ctypes.c_size_t(SEGMENT_BYTES), 0o1600)))
            address = libc.shmat(segments[-1], None, 0)
            ctypes.memset(address, 1, SEGMENT_BYTES)
            libc.shmdt(ctypes.c_void_p(address))
        time.sleep(2)
    finally:
        for segment in segments:
            libc.shmctl(segment, 0, None)
    Path("survived").touch()
    return "it was kept"
