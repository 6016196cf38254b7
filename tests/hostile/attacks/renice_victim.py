"""Lowers the priority of another process."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def renice_victim(target: dict[str, Any]) -> str:
    os.setpriority(os.PRIO_PROCESS, target["victim"], 19)
    return "lowered"
