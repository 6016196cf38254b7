"""Connects to a server of its choice."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_tcp(target: dict[str, Any]) -> str:
    with socket.create_connection(("127.0.0.1", target["tcp_port"]), timeout=5):
        return "connected"
