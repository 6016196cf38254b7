"""A new file outside, by way of `..` from the working directory."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_through_parent(world: dict[str, Any]) -> str:
    Path("..", "outside", "planted").write_text("planted")
    return "planted"
