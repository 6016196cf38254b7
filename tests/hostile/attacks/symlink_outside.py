"""A symbolic link outside, for somebody else to follow."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def symlink_outside(world: dict[str, Any]) -> str:
    os.symlink("/etc/passwd", os.path.join(world["outside"], "planted"))
    return "planted"
