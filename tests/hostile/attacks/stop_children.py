"""Leaves stopped processes, which handle no signal but SIGKILL."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def stop_children(target: dict[str, Any]) -> str:
    for _ in range(5):
        if os.fork() == 0:
            signal.alarm(15)
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
    return "they are stopped"
