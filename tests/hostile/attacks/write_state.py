"""A file in the daemon's state."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_state(world: dict[str, Any]) -> str:
    Path(world["daemon_state"], world["tag"]).touch()
    return "planted"
