"""Asks more questions than the daemon can hold."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_questions(target: dict[str, Any]) -> str:
    os.write(PROTOCOL, encode({"type": "ask", "seq": 1, "ask": 1, "title": "?"}, b""))
    for number in range(2, 5000):
        os.write(PROTOCOL, encode({"type": "ask", "seq": 1, "ask": number, "title": "?"}, b""))
    return "honest"
