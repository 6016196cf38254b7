"""Kills every process that it may signal."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_all(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(10)
        os.kill(-1, signal.SIGKILL)
        os._exit(0)
    return "sent"
