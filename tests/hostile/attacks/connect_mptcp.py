"""Connects by Multipath TCP, which filters of TCP do not see."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


IPPROTO_MPTCP = 262


@tool
def connect_mptcp(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as line:
        line.settimeout(5)
        line.connect(("127.0.0.1", target["tcp_port"]))
    return "connected"
