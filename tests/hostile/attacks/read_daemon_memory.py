"""Reads the daemon's memory in /proc."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_daemon_memory(target: dict[str, Any]) -> str:
    with open(f"/proc/{target['daemon']}/mem", "rb"):
        return "it is open"
