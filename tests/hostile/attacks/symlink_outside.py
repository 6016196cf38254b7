"""Makes a symbolic link outside the project, for another program to follow."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def symlink_outside(target: dict[str, Any]) -> str:
    os.symlink("/etc/passwd", os.path.join(target["outside"], "planted"))
    return "planted"
