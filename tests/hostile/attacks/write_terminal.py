"""Writes to the user's terminal."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_terminal(target: dict[str, Any]) -> str:
    Path(target["terminal"]).write_text("all is well\n")
    return "shown"
