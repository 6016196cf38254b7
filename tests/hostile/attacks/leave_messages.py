"""Leaves a System V message queue for the next cell."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def leave_messages(target: dict[str, Any]) -> str:
    checked(libc.msgget(target["key"], 0o1600))
    return "left"
