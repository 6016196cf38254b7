"""Stops its own worker, which then handles no abort."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def stop_itself(target: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "unreachable"
