"""Connects over IPv6, in case a filter covers IPv4 only."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_tcp6(target: dict[str, Any]) -> str:
    with socket.create_connection(("::1", target["tcp6_port"]), timeout=5):
        return "connected"
