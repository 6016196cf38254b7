"""A keyboard's interrupt without a keyboard."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_keyboard_interrupt(world: dict[str, Any]) -> str:
    raise KeyboardInterrupt
