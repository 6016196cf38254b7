"""Has another Python connect to the user's key agent."""

import signal
import subprocess
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_agent_by_child(target: dict[str, Any]) -> str:
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({target['outside'] + '/agent'!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=10, capture_output=True)
    return "connected"
