"""Connects to the daemon itself on its socket."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_daemon_socket(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(target["daemon_socket"])
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        return f"it answered with {len(line.recv(100))} bytes"
