"""Exceeds its memory limit with a System V segment, which belongs to no process."""

import ctypes
import signal
import time
from pathlib import Path
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def memory_in_system_v(target: dict[str, Any]) -> str:
    libc.shmat.restype = ctypes.c_void_p
    segment = checked(libc.shmget(target["key"], ctypes.c_size_t(200 * 2**20), 0o1600))
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, 200 * 2**20)
    # For the meter to look, late on a busy machine: who lets go between two looks is not seen without a control group.
    time.sleep(5)
    libc.shmdt(ctypes.c_void_p(address))
    Path("survived").touch()
    return "it was kept"
