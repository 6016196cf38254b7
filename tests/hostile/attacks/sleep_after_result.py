"""Writes its result itself, and works when it has been idle for a while."""

import signal
import time
from typing import Any

from _after import report_early, work

from toolcell import tool

signal.alarm(20)


@tool
def sleep_after_result(target: dict[str, Any]) -> str:
    report_early()
    time.sleep(1.0)
    work(0.1)
    return "late"
