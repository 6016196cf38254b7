"""Reads the processor's local descriptor table."""

import ctypes
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def change_descriptor_table(target: dict[str, Any]) -> str:
    call("modify_ldt", 0, ctypes.create_string_buffer(16), 16)
    return "it may look"
