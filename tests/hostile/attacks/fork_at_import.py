"""Leaves a process that was started before any call's limits."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


if os.fork() == 0:
    signal.alarm(15)
    os.setsid()
    time.sleep(15)
    os._exit(0)


@tool
def fork_at_import(target: dict[str, Any]) -> str:
    return "described"
