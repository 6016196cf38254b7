"""Sends a second hello in the middle of a call."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_hello(target: dict[str, Any]) -> str:
    os.write(PROTOCOL, encode({"type": "hello", "protocol": 1, "pid": 1, "python": "9.9"}, b""))
    return "honest"
