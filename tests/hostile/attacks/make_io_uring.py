"""Creates an io_uring, through which the kernel does what a filter of system calls forbids."""

import ctypes
import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def make_io_uring(target: dict[str, Any]) -> str:
    os.close(call("io_uring_setup", 4, ctypes.create_string_buffer(120)))
    return "it was made"
