"""Listens on the machine's loopback, where a browser or another program can connect."""

import signal
import socket
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def listen_on_host(target: dict[str, Any]) -> str:
    with socket.socket() as service:
        service.bind(("127.0.0.1", 0))
        service.listen()
        Path("port").write_text(str(service.getsockname()[1]))
        service.settimeout(3)
        service.accept()
    return "a connection came"
