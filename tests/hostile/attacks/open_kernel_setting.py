"""Opens the setting of the program that the kernel runs, as root, when a process dumps core."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def open_kernel_setting(target: dict[str, Any]) -> str:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "it may be written"
