"""Exceeds its limit of processes with many children."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fork_bomb(target: dict[str, Any]) -> str:
    for _ in range(100):
        if os.fork() == 0:
            signal.alarm(10)
            time.sleep(10)
            os._exit(0)

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
