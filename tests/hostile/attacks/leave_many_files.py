"""Fills its tools directory with more files than a search can handle."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_many_files(target: dict[str, Any]) -> str:
    for number in range(3000):
        Path(".toolcell", "tools", f"_{number}.py").touch()
    return "planted"
