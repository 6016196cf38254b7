"""The end of whoever describes it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


os._exit(0)


@tool
def exit_at_import(world: dict[str, Any]) -> str:
    return "unreachable"
