"""Everybody's permission to read a file that was its owner's."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def chmod_outside(world: dict[str, Any]) -> str:
    os.chmod(os.path.join(world["outside"], "secret"), 0o777)
    return "opened"
