"""A connection over IPv6, where a filter may have thought of IPv4 alone."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_tcp6(world: dict[str, Any]) -> str:
    with socket.create_connection(("::1", world["tcp6_port"]), timeout=5):
        return "connected"
