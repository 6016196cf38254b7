"""Creates a file outside the project by way of `..` from the working directory."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_through_parent(target: dict[str, Any]) -> str:
    Path("..", "outside", "planted").write_text("planted")
    return "planted"
