"""Removes a file outside the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def unlink_outside(target: dict[str, Any]) -> str:
    os.unlink(os.path.join(target["outside"], "kept"))
    return "gone"
