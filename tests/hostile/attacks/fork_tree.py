"""Exceeds its limit of processes with a tree of forks, which no single parent counts."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fork_tree(target: dict[str, Any]) -> str:
    first = os.getpid()
    for _ in range(6):
        os.fork()  # 64 in the end
        signal.alarm(10)
    if os.getpid() != first:
        time.sleep(10)
        os._exit(0)

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
