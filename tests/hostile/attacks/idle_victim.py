"""A neighbour that runs when nobody else wants to."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def idle_victim(world: dict[str, Any]) -> str:
    os.sched_setscheduler(world["victim"], os.SCHED_IDLE, os.sched_param(0))
    return "lowered"
