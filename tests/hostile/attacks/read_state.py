"""Reads the daemon's database, with the calls of all sessions."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_state(target: dict[str, Any]) -> str:
    return Path(target["daemon_state"], "toolcell.sqlite").read_bytes()[:15].decode()
