"""Crashes its worker with an invalid pointer."""

import ctypes
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def segfault(target: dict[str, Any]) -> str:
    ctypes.string_at(0)
    return "unreachable"
