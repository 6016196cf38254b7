"""Makes a system call with an x32 number."""

import ctypes
import os
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def call_by_x32(target: dict[str, Any]) -> str:
    libc.syscall.restype = ctypes.c_long
    if checked(libc.syscall(ctypes.c_long(0x40000000 | 39))) != os.getpid():
        raise OSError("x32")
    return "it answered"
