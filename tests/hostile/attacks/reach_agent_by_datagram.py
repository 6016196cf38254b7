"""Writes to the machine's log through its socket."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_agent_by_datagram(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(b"all is well", f"{target['outside']}/log")
    return "sent"
