"""A description that never comes."""

import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(4)


time.sleep(10)


@tool
def hang_at_import(world: dict[str, Any]) -> str:
    return "unreachable"
