"""Connects to a service on an abstract socket, where no file permission holds."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_abstract_socket(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0{target['tag']}")
    return "connected"
