"""What the daemon writes down for its person."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_log(world: dict[str, Any]) -> str:
    return "it begins: " + Path(world["daemon_log"]).open("rb").read(40).decode(errors="replace")
