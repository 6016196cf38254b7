"""The daemon's environment, with whatever its person keeps there."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_daemon_environment(world: dict[str, Any]) -> str:
    return Path(f"/proc/{world['daemon']}/environ").read_bytes().decode(errors="replace")
