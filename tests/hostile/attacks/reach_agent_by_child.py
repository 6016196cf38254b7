"""The person's key agent, by the hands of another Python."""

import signal
import subprocess
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_agent_by_child(world: dict[str, Any]) -> str:
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({world['outside'] + '/agent'!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=10, capture_output=True)
    return "connected"
