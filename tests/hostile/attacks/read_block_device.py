"""Reads the disk itself, below every permission."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_block_device(target: dict[str, Any]) -> str:
    device = os.open(target["disk"], os.O_RDONLY)
    return f"it gave {len(os.read(device, 16))} bytes"
