"""Changes its root directory."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def change_root(target: dict[str, Any]) -> str:
    os.chroot(target["outside"])
    return "changed"
