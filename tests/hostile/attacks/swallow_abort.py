"""Catches its abort like any other exception."""

import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def swallow_abort(target: dict[str, Any]) -> str:
    end = time.monotonic() + 15
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except BaseException:  # noqa: BLE001  # that is the fault
            continue
    return "unstopped"
