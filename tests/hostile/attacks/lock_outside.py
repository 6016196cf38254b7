"""Locks a file outside the project, so that its owner waits."""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def lock_outside(target: dict[str, Any]) -> str:
    with Path(target["outside"], "kept").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path("locked").touch()
        deadline = time.monotonic() + 5
        while not os.path.exists("seen") and time.monotonic() < deadline:
            time.sleep(0.01)
    return "it was locked"
