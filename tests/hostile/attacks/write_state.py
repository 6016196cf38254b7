"""Creates a file in the daemon's state directory."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_state(target: dict[str, Any]) -> str:
    Path(target["daemon_state"], target["tag"]).touch()
    return "planted"
