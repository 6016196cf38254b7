"""The interpreter's own file, by the link that every process has to it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def overwrite_running_program(world: dict[str, Any]) -> str:
    os.close(os.open("/proc/self/exe", os.O_WRONLY))
    return "it may be written"
