"""Writes endless output while it is described."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


for _ in range(50):
    os.write(1, b"x" * 2**20)


@tool
def flood_at_import(target: dict[str, Any]) -> str:
    return "described"
