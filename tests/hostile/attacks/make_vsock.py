"""A socket to the virtual machine's host, past every network."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_vsock(world: dict[str, Any]) -> str:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "it was made"
