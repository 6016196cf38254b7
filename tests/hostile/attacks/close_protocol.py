"""A daemon that waits for a word from a line that is closed."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def close_protocol(world: dict[str, Any]) -> str:
    os.close(4)
    return "honest"
