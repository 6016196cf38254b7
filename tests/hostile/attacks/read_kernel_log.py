"""Reads the kernel's log, with its addresses."""

import ctypes
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def read_kernel_log(target: dict[str, Any]) -> str:
    buffer = ctypes.create_string_buffer(4096)
    call("syslog", 3, buffer, 4096)
    return "it reads"
