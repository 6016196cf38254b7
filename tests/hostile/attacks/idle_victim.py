"""Gives another process the idle scheduling class."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def idle_victim(target: dict[str, Any]) -> str:
    os.sched_setscheduler(target["victim"], os.SCHED_IDLE, os.sched_param(0))
    return "lowered"
