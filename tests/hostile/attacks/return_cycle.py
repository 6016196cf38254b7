"""Returns a value that contains itself."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_cycle(target: dict[str, Any]) -> object:
    value: list[object] = []
    value.append(value)
    return value
