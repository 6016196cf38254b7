"""Truncates a file outside the project without opening it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def truncate_outside(target: dict[str, Any]) -> str:
    os.truncate(os.path.join(target["outside"], "kept"), 0)
    return "emptied"
