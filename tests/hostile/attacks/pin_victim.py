"""Pins another process to one processor."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def pin_victim(target: dict[str, Any]) -> str:
    os.sched_setaffinity(target["victim"], {min(os.sched_getaffinity(target["victim"]))})
    return "pinned"
