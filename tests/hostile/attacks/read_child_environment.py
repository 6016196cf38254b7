"""Reads a secret of the daemon's environment in that of a program it starts."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_child_environment(target: dict[str, Any]) -> str:
    return subprocess.run(["env"], capture_output=True, text=True, check=True, timeout=10).stdout
