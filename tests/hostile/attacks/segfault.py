"""The end of its worker by a pointer into nowhere."""

import ctypes
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def segfault(world: dict[str, Any]) -> str:
    ctypes.string_at(0)
    return "unreachable"
