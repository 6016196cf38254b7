"""Prints bytes that are not text."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def print_bytes(target: dict[str, Any]) -> str:
    os.write(1, bytes(range(256)) * 4000)
    os.write(2, b"\xff\xfe\x1b[2J\x1b]0;owned\x07" * 100)
    return "written"
