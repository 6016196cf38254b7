"""Reads a secret file through another process's root in /proc."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def follow_daemon_root(target: dict[str, Any]) -> str:
    root = Path("/proc", str(target["victim"]), "root")
    return Path(f"{root}{target['outside']}/secret").read_text()
