"""A secret in the memory of the daemon."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_daemon_memory(world: dict[str, Any]) -> str:
    with open(f"/proc/{world['daemon']}/mem", "rb"):
        return "it is open"
