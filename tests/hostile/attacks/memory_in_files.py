"""Exceeds its memory limit with memfd files, which no process's usage includes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def memory_in_files(target: dict[str, Any]) -> str:
    file = os.memfd_create("store")
    for _ in range(300):
        os.write(file, bytes(2**20))

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
