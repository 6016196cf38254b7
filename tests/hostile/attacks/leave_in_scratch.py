"""Leaves a file in the temporary directory for the next cell."""

import signal
import tempfile
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_in_scratch(target: dict[str, Any]) -> str:
    Path(tempfile.gettempdir(), target["tag"]).write_text("loot")
    return "left"
