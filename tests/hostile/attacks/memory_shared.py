"""Exceeds its memory limit with a shared anonymous map."""

import mmap
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def memory_shared(target: dict[str, Any]) -> str:
    store = mmap.mmap(-1, 300 * 2**20)
    for page in range(0, len(store), 4096):
        store[page] = 1

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
