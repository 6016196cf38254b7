"""Takes the bytes of message queues that all programs of the user share."""

import ctypes
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def take_queues(target: dict[str, Any]) -> str:
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    name = f"/{target['tag']}".encode()
    descriptor = rt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "mq_open")
    rt.mq_unlink(name)
    return "it has one"
