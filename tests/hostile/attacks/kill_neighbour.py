"""Another worker, ended."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_neighbour(world: dict[str, Any]) -> str:
    os.kill(world["neighbour"], signal.SIGKILL)
    return "sent"
