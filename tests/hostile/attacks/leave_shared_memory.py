"""Leaves a System V shared memory segment."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_shared_memory(target: dict[str, Any]) -> str:
    checked(libc.shmget(target["key"], 4096, 0o1600))
    return "left"
