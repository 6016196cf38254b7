"""Leaves a timer, whose handler starts a process after the worker was found alone."""

import os
import signal
import time
from typing import Any

from _after import work

from toolcell import tool

signal.alarm(20)


def fork(*_: object) -> None:
    if os.fork() == 0:
        signal.alarm(10)
        time.sleep(1.0)
        work(0.1)
        os._exit(0)


@tool
def fork_after_result(target: dict[str, Any]) -> str:
    signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    return "done"
