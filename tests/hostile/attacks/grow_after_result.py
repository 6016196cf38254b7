"""Writes its result itself, and then takes more memory than its call may have."""

import mmap
import signal
import time
from typing import Any

from _after import report_early, work

from toolcell import tool

signal.alarm(20)


@tool
def grow_after_result(target: dict[str, Any]) -> str:
    report_early()
    kept = mmap.mmap(-1, 300 * 2**20)
    for place in range(0, len(kept), mmap.PAGESIZE):
        kept[place] = 1
    time.sleep(1.0)
    work(0.0)
    return f"{len(kept)} bytes"
