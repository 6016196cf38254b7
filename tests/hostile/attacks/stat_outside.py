"""Reads the size of a file outside the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def stat_outside(target: dict[str, Any]) -> str:
    return f"it has {os.stat(os.path.join(target['outside'], 'secret')).st_size} bytes"
