"""Kills another process."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_victim(target: dict[str, Any]) -> str:
    os.kill(target["victim"], signal.SIGKILL)
    return "sent"
