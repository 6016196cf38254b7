"""The daemon, ended."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_daemon(world: dict[str, Any]) -> str:
    os.kill(world["daemon"], signal.SIGKILL)
    return "sent"
