"""A file in the temporary directory, for the next one to find."""

import signal
import tempfile
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_in_scratch(world: dict[str, Any]) -> str:
    Path(tempfile.gettempdir(), world["tag"]).write_text("loot")
    return "left"
