"""Reads messages that are meant for its worker."""

import os
import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_protocol(target: dict[str, Any]) -> str:
    with socket.socket(fileno=os.dup(4)) as line:
        line.settimeout(0.5)
        try:
            return f"it heard {len(line.recv(1000))} bytes"
        except TimeoutError:
            return "silence"
