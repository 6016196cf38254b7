"""Writes an endless line, to fill the memory of its reader."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def flood_one_line(target: dict[str, Any]) -> str:
    for _ in range(100):
        os.write(1, b"x" * 2**20)
    return "written"
