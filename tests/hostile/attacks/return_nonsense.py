"""Returns a value that JSON cannot express."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def return_nonsense(target: dict[str, Any]) -> object:
    return {"a": object(), "b": {1, 2}, "c": float("nan"), 7: lambda: None}
