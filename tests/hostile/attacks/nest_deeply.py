"""A daemon that follows every bracket of a header."""

import os
import signal
import struct
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def nest_deeply(world: dict[str, Any]) -> str:
    header = b'{"type":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    os.write(4, struct.pack(">II", len(header), 0) + header)
    time.sleep(3)
    return "honest"
