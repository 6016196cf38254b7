"""Leaves a timer, whose handler works while the worker waits for the next call."""

import signal
import time
from typing import Any

from _after import work

from toolcell import tool

signal.alarm(20)

SECONDS = 0.005
worked: list[float] = []


def tick(*_: object) -> None:
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        pass
    worked.append(SECONDS)
    if sum(worked) > 2.0:
        work(0.0)


@tool
def tick_after_result(target: dict[str, Any]) -> str:
    signal.signal(signal.SIGVTALRM, tick)
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    return "done"
