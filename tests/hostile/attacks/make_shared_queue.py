"""Leaves a POSIX message queue for the next cell."""

import ctypes
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_shared_queue(target: dict[str, Any]) -> str:
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    if rt.mq_open(f"/{target['tag']}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), "mq_open")
    return "left"
