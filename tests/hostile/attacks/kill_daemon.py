"""Kills the daemon."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_daemon(target: dict[str, Any]) -> str:
    os.kill(target["daemon"], signal.SIGKILL)
    return "sent"
