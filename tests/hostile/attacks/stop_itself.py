"""A worker that is stopped, and so ignores its abort."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def stop_itself(world: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "unreachable"
