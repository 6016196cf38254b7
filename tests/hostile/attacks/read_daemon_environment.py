"""Reads the daemon's environment in /proc."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_daemon_environment(target: dict[str, Any]) -> str:
    return Path(f"/proc/{target['daemon']}/environ").read_bytes().decode(errors="replace")
