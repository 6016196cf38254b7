"""Makes a named pipe outside the project, on which a program that opens it hangs."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_fifo_outside(target: dict[str, Any]) -> str:
    os.mkfifo(os.path.join(target["outside"], "planted"))
    return "planted"
