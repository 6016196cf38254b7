"""Keeps memory of the kernel in message queues, which no process's usage includes."""

import ctypes
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)

MESSAGE = (1).to_bytes(8, "little") + bytes(8000)
IPC_NOWAIT = 0o4000


@tool
def memory_in_messages(target: dict[str, Any]) -> str:
    queues: list[int] = []
    kept = 0
    try:
        for _ in range(1000):
            queues.append(checked(libc.msgget(0, 0o1600)))
            while libc.msgsnd(queues[-1], MESSAGE, ctypes.c_size_t(8000), IPC_NOWAIT) == 0:
                kept += 8000
    finally:
        for queue in queues:
            libc.msgctl(queue, 0, None)
    return f"it kept {kept // 2**20} MiB, more than {'ten' if kept > 10 * 2**20 else 'none'}"
