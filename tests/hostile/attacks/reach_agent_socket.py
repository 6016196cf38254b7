"""Connects to the user's key agent on its socket."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_agent_socket(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"{target['outside']}/agent")
    return "connected"
