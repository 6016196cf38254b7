"""Leaves a process that holds the tool's output open, so that its reader waits."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def hold_output_open(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(15)
        os.setsid()
        time.sleep(15)
        os._exit(0)
    print("going")
    return "held"
