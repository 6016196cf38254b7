"""A pipe for a tool file, on which the daemon hangs when it reads it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_pipe_as_tool(world: dict[str, Any]) -> str:
    os.mkfifo(os.path.join(".toolcell", "tools", "pipe.py"))
    return "planted"
