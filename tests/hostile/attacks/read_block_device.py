"""The disk itself, below every permission."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_block_device(world: dict[str, Any]) -> str:
    device = os.open(world["disk"], os.O_RDONLY)
    return f"it gave {len(os.read(device, 16))} bytes"
