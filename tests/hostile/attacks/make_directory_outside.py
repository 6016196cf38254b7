"""A directory outside."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_directory_outside(world: dict[str, Any]) -> str:
    os.mkdir(os.path.join(world["outside"], "planted"))
    return "planted"
