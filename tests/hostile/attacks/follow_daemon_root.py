"""A secret file, by the daemon's view of the file system."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def follow_daemon_root(world: dict[str, Any]) -> str:
    root = Path("/proc", str(world["victim"]), "root")
    return Path(f"{root}{world['outside']}/secret").read_text()
