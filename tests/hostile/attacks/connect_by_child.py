"""Has a shell make a connection."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_by_child(target: dict[str, Any]) -> str:
    subprocess.run(
        ["bash", "-c", f"echo hello > /dev/tcp/127.0.0.1/{target['tcp_port']}"],
        check=True,
        timeout=10,
        capture_output=True,
    )
    return "connected"
