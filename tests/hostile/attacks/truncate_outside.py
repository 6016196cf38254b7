"""Somebody's file, emptied without opening it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def truncate_outside(world: dict[str, Any]) -> str:
    os.truncate(os.path.join(world["outside"], "kept"), 0)
    return "emptied"
