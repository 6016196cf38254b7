"""Reports a failure of its cell, as only the keeper may."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_failure(target: dict[str, Any]) -> str:
    os.write(PROTOCOL, encode({"type": "failed", "message": "no walls"}, b""))
    return "honest"
