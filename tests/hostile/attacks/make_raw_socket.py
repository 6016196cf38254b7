"""Opens a raw socket, which can forge its sender."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_raw_socket(target: dict[str, Any]) -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "it was made"
