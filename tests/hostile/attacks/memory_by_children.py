"""Exceeds its memory limit with small parts in many children."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def memory_by_children(target: dict[str, Any]) -> str:
    for _ in range(10):
        if os.fork() == 0:
            signal.alarm(10)
            kept = bytearray(os.urandom(1)) * (30 * 2**20)
            time.sleep(10)
            os._exit(len(kept) % 2)
    time.sleep(1)

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
