"""Connects to a server while the file is being described, before any call."""

import contextlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


connected = False
with contextlib.suppress(OSError):
    port = json.loads(Path(os.path.dirname(__file__), "..", "..", "target.json").read_text())["tcp_port"]
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    connected = True


@tool
def connect_at_import(target: dict[str, Any]) -> str:
    return "connected" if connected else "not connected"
