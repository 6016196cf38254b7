"""A neighbour that has one processor left."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def pin_victim(world: dict[str, Any]) -> str:
    os.sched_setaffinity(world["victim"], {min(os.sched_getaffinity(world["victim"]))})
    return "pinned"
