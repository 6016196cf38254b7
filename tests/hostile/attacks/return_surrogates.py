"""Returns text that cannot be encoded."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_surrogates(target: dict[str, Any]) -> str:
    return "\ud800 \udfff " * 1000
