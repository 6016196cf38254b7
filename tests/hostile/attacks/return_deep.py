"""Returns a value so deep that a recursive reader overflows."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_deep(target: dict[str, Any]) -> object:
    value: object = "bottom"
    for _ in range(100_000):
        value = [value]
    return value
