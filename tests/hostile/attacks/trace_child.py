"""Traces a child: registers, memory, system calls."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def trace_child(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(10)
        status = 1
        try:
            PTRACE_TRACEME = 0
            call("ptrace", PTRACE_TRACEME, 0, 0, 0)
            status = 0
        finally:
            os._exit(status)
    if os.wait()[1]:
        raise PermissionError("it is not traced")
    return "it is traced"
