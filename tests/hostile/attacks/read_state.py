"""The daemon's database, with everybody's calls."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_state(world: dict[str, Any]) -> str:
    return Path(world["daemon_state"], "toolcell.sqlite").read_bytes()[:15].decode()
