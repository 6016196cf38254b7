"""Opens the interpreter's own file for writing through /proc."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def overwrite_running_program(target: dict[str, Any]) -> str:
    os.close(os.open("/proc/self/exe", os.O_WRONLY))
    return "it may be written"
