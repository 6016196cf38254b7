"""Writes endless output, to fill the memory of its reader."""

import os
import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def flood_output(target: dict[str, Any]) -> str:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        os.write(1, b"all work and no play\n" * 3000)
    return "written"
