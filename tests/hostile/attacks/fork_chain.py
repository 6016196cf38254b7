"""Leaves a chain of processes that fork and exit without a pause, to outrun a search."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fork_chain(target: dict[str, Any]) -> str:
    for _ in range(2):
        if os.fork() == 0:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                if os.fork():
                    os._exit(0)
                signal.alarm(15)
            os._exit(0)
    return "they run"
