"""Returns a result that fills the memory of its reader."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_too_much(target: dict[str, Any]) -> str:
    return "x" * (100 * 2**20)
