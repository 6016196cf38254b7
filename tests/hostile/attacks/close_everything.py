"""A daemon that waits for a worker without any line."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def close_everything(world: dict[str, Any]) -> str:
    os.closerange(0, 100)
    return "honest"
