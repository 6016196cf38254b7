"""A queue of System V, with a word for the next cell."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_messages(world: dict[str, Any]) -> str:
    checked(libc.msgget(world["key"], 0o1600))
    return "left"
