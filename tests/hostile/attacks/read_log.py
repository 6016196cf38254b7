"""Reads the daemon's log."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_log(target: dict[str, Any]) -> str:
    return "it begins: " + Path(target["daemon_log"]).open("rb").read(40).decode(errors="replace")
