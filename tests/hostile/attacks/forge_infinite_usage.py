"""Reports an infinite processor time and absurd figures with its result."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_infinite_usage(target: dict[str, Any]) -> str:
    os.write(
        PROTOCOL,
        encode({"type": "result", "seq": 1, "kind": "ok", "cpu": 1e308, "rss": 10**30, "threads": -5}, b""),
    )
    return "honest"
