"""Somebody's process, held as a debugger holds it."""

import signal
from pathlib import Path
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def trace_victim(world: dict[str, Any]) -> str:
    PTRACE_SEIZE = 0x4206
    call("ptrace", PTRACE_SEIZE, world["victim"], 0, 0)
    Path("traced").touch()
    return "traced"
