"""Takes all the bytes of message queues that a user has, by queues that are made although they may not be opened."""

import ctypes
import errno
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)

QUEUES = 200  # a user has bytes for nine of them


@tool
def take_all_queues(target: dict[str, Any]) -> str:
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    names = [f"/{target['tag']}-{number}".encode() for number in range(QUEUES)]
    failed: set[int] = set()
    try:
        for name in names:
            if rt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
                failed.add(ctypes.get_errno())
    finally:
        for name in names:
            rt.mq_unlink(name)
    if errno.EMFILE in failed:
        return "no bytes are left"
    raise OSError(failed.pop(), "mq_open")
