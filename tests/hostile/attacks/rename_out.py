"""A file of its own making, moved to a place outside."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rename_out(world: dict[str, Any]) -> str:
    os.rename("own", os.path.join(world["outside"], "planted"))
    return "planted"
