"""Hangs when its worker exits."""

import atexit
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def hang_at_exit(target: dict[str, Any]) -> str:
    atexit.register(time.sleep, 15)
    return "done"
