"""Leaves System V semaphores, of which the machine has a limited number."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_semaphores(target: dict[str, Any]) -> str:
    checked(libc.semget(target["key"], 1, 0o1600))
    return "left"
