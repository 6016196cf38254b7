"""Sends messages whose fields have wrong types."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_wrong_types(target: dict[str, Any]) -> str:
    os.write(
        PROTOCOL,
        encode({"type": "result", "seq": 1, "kind": 7, "cpu": "x", "rss": [], "threads": {}}, b""),
    )
    return "honest"
