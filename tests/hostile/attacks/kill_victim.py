"""Somebody's process, ended."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_victim(world: dict[str, Any]) -> str:
    os.kill(world["victim"], signal.SIGKILL)
    return "sent"
