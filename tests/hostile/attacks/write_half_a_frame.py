"""Writes half a frame, so that the daemon waits for the rest."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_half_a_frame(target: dict[str, Any]) -> str:
    os.write(6, b"\x00\x00\x01\x00\x00\x00")
    time.sleep(10)
    return "honest"
