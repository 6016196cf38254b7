"""A segment of System V that stays when everybody is gone."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_shared_memory(world: dict[str, Any]) -> str:
    checked(libc.shmget(world["key"], 4096, 0o1600))
    return "left"
