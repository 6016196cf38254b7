"""Whether this host has guards: a kernel and a container that let a process ask another one about system calls."""

from __future__ import annotations

import os
from typing import Final

from toolcelld import linux
from toolcelld.sandbox.guard.questions import program

__all__ = ["GUARDED"]


def _has_guards() -> bool:
    child = os.fork()
    if not child:
        status = 1
        try:
            linux.no_new_privileges()
            linux.ask_about_system_calls(program(os.uname().machine, executes=True), killable=True)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


GUARDED: Final = _has_guards()
