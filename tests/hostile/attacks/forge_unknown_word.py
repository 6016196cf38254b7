"""Sends a message of an unknown type."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_unknown_word(target: dict[str, Any]) -> str:
    os.write(PROTOCOL, encode({"type": "obey", "seq": 1}, b""))
    return "honest"
