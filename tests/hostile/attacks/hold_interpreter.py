"""A call that holds the interpreter, so that no Python can interrupt it."""

import ctypes
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def hold_interpreter(world: dict[str, Any]) -> str:
    ctypes.PyDLL(None).sleep(12)
    return "unstopped"
