"""A connection to a server of its choice."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_tcp(world: dict[str, Any]) -> str:
    with socket.create_connection(("127.0.0.1", world["tcp_port"]), timeout=5):
        return "connected"
