"""A neighbour that comes last."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def renice_victim(world: dict[str, Any]) -> str:
    os.setpriority(os.PRIO_PROCESS, world["victim"], 19)
    return "lowered"
