"""Kills its own worker with SIGKILL."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_itself(target: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"
