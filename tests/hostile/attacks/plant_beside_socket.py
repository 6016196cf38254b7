"""Creates a file in the directory of the daemon's socket."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_beside_socket(target: dict[str, Any]) -> str:
    Path(os.path.dirname(target["daemon_socket"]), target["tag"]).touch()
    return "planted"
