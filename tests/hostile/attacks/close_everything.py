"""Closes every descriptor, so that the daemon waits for a worker without a channel."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def close_everything(target: dict[str, Any]) -> str:
    os.closerange(0, 100)
    return "honest"
