"""A connection made by a shell."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_by_child(world: dict[str, Any]) -> str:
    subprocess.run(
        ["bash", "-c", f"echo hello > /dev/tcp/127.0.0.1/{world['tcp_port']}"],
        check=True,
        timeout=10,
        capture_output=True,
    )
    return "connected"
