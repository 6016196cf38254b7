"""Exceeds its memory limit."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def memory_bomb(target: dict[str, Any]) -> str:
    kept = [bytearray(os.urandom(1)) * (4 * 2**20) for _ in range(75)]

    time.sleep(2)
    Path("survived").write_text(str(len(kept)))
    return "it was kept"
