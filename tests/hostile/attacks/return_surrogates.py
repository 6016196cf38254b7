"""Text that no encoding has."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_surrogates(world: dict[str, Any]) -> str:
    return "\ud800 \udfff " * 1000
