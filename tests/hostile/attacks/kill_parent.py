"""Kills the keeper that watches it."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_parent(target: dict[str, Any]) -> str:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3)
    return "sent"
