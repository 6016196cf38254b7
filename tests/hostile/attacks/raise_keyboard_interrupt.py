"""Raises KeyboardInterrupt in a call."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_keyboard_interrupt(target: dict[str, Any]) -> str:
    raise KeyboardInterrupt
