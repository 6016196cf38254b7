"""Links an endless device as a tool file."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_endless_tool(target: dict[str, Any]) -> str:
    os.symlink("/dev/zero", os.path.join(".toolcell", "tools", "endless.py"))
    return "planted"
