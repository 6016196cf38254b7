"""Takes asynchronous requests to disks (AIO), of which all programs of the machine share 65,536."""

import ctypes
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def take_requests(target: dict[str, Any]) -> str:
    call("io_setup", 8, ctypes.byref(ctypes.c_ulong()))
    return "it has eight"
