"""Opens a socket to the virtual machine's host, bypassing every network."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_vsock(target: dict[str, Any]) -> str:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "it was made"
