"""Binds a unix socket outside the project, where other programs look for a service."""

import os
import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def bind_socket_outside(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as service:
        os.chdir(target["outside"])
        service.bind("planted")
    return "planted"
