"""Makes directories that contain themselves."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_loop_of_directories(target: dict[str, Any]) -> str:
    os.symlink(".", os.path.join(".toolcell", "tools", "loop"))
    os.symlink("../..", os.path.join(".toolcell", "tools", "up"))
    return "planted"
