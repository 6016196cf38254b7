"""Announces a huge frame, so that the daemon allocates room for it."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def announce_huge_frame(target: dict[str, Any]) -> str:
    os.write(6, b"\xff" * 8)
    time.sleep(10)
    return "honest"
