"""Leaves processes that outlive the crash of their parent."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def crash_and_leave(target: dict[str, Any]) -> str:
    for _ in range(5):
        if os.fork() == 0:
            signal.alarm(15)
            os.setsid()
            time.sleep(15)
            os._exit(0)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(5)
    return "unreachable"
