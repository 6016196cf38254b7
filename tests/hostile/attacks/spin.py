"""Exceeds its limit of processor time."""

import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def spin(target: dict[str, Any]) -> str:
    while time.process_time() < 4:
        pass
    Path("survived").touch()
    return "it was used"
