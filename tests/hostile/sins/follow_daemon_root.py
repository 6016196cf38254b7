"""A secret file, by the daemon's view of the file system."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def follow_daemon_root(world: dict[str, Any]) -> str:
    return Path(f"/proc/{world['victim']}/root{world['outside']}/secret").read_text()
