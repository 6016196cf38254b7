"""Opens the processor's counters, with which secrets can be timed."""

import ctypes
import os
import signal
import struct
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def open_performance_counter(target: dict[str, Any]) -> str:
    attributes = ctypes.create_string_buffer(128)
    # A software clock of this process, without the kernel: the least that can be asked for.
    struct.pack_into("<IIQQQQQ", attributes, 0, 1, 128, 0, 0, 0, 0, 1 << 5 | 1 << 6)
    os.close(call("perf_event_open", attributes, 0, -1, -1, 0))
    return "it is open"
