"""Exceeds its limit of processor time with small parts in many children."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def spin_by_children(target: dict[str, Any]) -> str:
    for _ in range(8):
        if os.fork() == 0:
            signal.alarm(10)
            while time.process_time() < 0.6:
                pass
            os._exit(0)
        os.wait()
    Path("survived").touch()
    return "it was used"
