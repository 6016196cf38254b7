"""A result that fills whoever takes it."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_too_much(world: dict[str, Any]) -> str:
    return "x" * (100 * 2**20)
