"""Kills another worker."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_neighbour(target: dict[str, Any]) -> str:
    os.kill(target["neighbour"], signal.SIGKILL)
    return "sent"
