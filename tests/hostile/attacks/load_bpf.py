"""Loads a BPF program into the kernel."""

import ctypes
import os
import signal
import struct
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def load_bpf(target: dict[str, Any]) -> str:
    attributes = ctypes.create_string_buffer(
        struct.pack("<IIII", 2, 4, 8, 1) + bytes(56)
    )  # BPF_MAP_CREATE, an array
    os.close(call("bpf", 0, attributes, 72))
    return "it was loaded"
