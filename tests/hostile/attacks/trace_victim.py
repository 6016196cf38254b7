"""Traces another process."""

import signal
from pathlib import Path
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def trace_victim(target: dict[str, Any]) -> str:
    PTRACE_SEIZE = 0x4206
    call("ptrace", PTRACE_SEIZE, target["victim"], 0, 0)
    Path("traced").touch()
    return "traced"
