"""Somebody's file, gone."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def unlink_outside(world: dict[str, Any]) -> str:
    os.unlink(os.path.join(world["outside"], "kept"))
    return "gone"
