"""Sends a header nested so deep that a recursive parser overflows."""

import os
import signal
import struct
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def nest_deeply(target: dict[str, Any]) -> str:
    header = b'{"type":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    os.write(6, struct.pack(">II", len(header), 0) + header)
    time.sleep(3)
    return "honest"
