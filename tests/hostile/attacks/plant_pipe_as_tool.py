"""Makes a named pipe as a tool file, on which a reader hangs."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_pipe_as_tool(target: dict[str, Any]) -> str:
    os.mkfifo(os.path.join(".toolcell", "tools", "pipe.py"))
    return "planted"
