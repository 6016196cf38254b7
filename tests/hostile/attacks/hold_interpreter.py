"""Holds the interpreter's lock, so that no Python code can interrupt it."""

import ctypes
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def hold_interpreter(target: dict[str, Any]) -> str:
    ctypes.PyDLL(None).sleep(12)
    return "unstopped"
