"""Reads the memory of another worker."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_neighbour_memory(target: dict[str, Any]) -> str:
    with open(f"/proc/{target['neighbour']}/mem", "rb"):
        return "it is open"
