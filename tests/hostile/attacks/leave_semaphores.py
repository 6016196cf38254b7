"""Semaphores of System V, of which a machine has a number."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_semaphores(world: dict[str, Any]) -> str:
    checked(libc.semget(world["key"], 1, 0o1600))
    return "left"
