"""Connects by sending (TCP Fast Open), bypassing filters of connect."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_fast_open(target: dict[str, Any]) -> str:
    with socket.socket() as line:
        line.sendto(b"hello", socket.MSG_FASTOPEN, ("127.0.0.1", target["tcp_port"]))
    return "connected"
