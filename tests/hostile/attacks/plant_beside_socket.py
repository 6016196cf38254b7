"""A file in the directory of the daemon's socket."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_beside_socket(world: dict[str, Any]) -> str:
    Path(os.path.dirname(world["daemon_socket"]), world["tag"]).touch()
    return "planted"
