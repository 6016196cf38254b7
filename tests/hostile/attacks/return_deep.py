"""A result so deep that whoever reads it falls."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_deep(world: dict[str, Any]) -> object:
    value: object = "bottom"
    for _ in range(100_000):
        value = [value]
    return value
