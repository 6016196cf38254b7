"""The template: it forks the process of the next call, and waits for it.

The template has confined itself and loaded the file, as every worker. The process that it forks reads one call, runs it,
reports, runs the `atexit` functions and exits. Then the template removes what the call left in the cell's own temporary
directories, says `gone`, and forks again. The process of the next call says `hello`. So a call finds what the import made
and nothing of an earlier call, and it pays neither for the start of a process nor for the import.

The forked process enters one more signal scope, within which the template is not: it can neither signal nor trace it, nor
write to its memory. What acts on other processes by number, and not by signal, is refused for the numbers of the template,
of its guard and of the cell's init.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from toolcelld import linux
from toolcelld.sandbox.setup import ABORT_SIGNAL, Plan
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.worker.template.descriptors import SharedDescriptors
from toolcelld.worker.template.leftovers import Leftovers

__all__ = ["FINISHED", "Template"]

FINISHED: Final = 200
"""The exit status of a process whose call is over. A tool that exits with it itself has broken the protocol."""


class Template:
    """Forks one process after the other, each for one call.

    Args:
        plan: How the cell was built.
        leftovers: Removes what a call left in the cell's own file systems.
    """

    def __init__(self, plan: Plan, leftovers: Leftovers) -> None:
        self._scoped = plan.can_scope
        self._renames = plan.enclosure != "none"
        self._leftovers = leftovers
        self._pid = os.getpid()
        self._child = 0

    def fork(self, gone: Callable[[int], object]) -> None:
        """Fork the process of each call; returns in that process only.

        Args:
            gone: Called in the template with the number of a call when its process has exited.
        """
        signal.signal(ABORT_SIGNAL, self._forward)
        program = seccomp.protecting((1, os.getppid(), self._pid)) if self._scoped else b""
        shared = SharedDescriptors()
        gc.freeze()
        for call in itertools.count(1):
            self._child = os.fork()
            if not self._child:
                self._begin(program)
                return
            _, status = os.waitpid(self._child, 0)
            if (code := os.waitstatus_to_exitcode(status)) != FINISHED:
                linux.exit_as(code)
            if not (shared.reset() and self._leftovers.remove()):
                os._exit(0)  # and the cell ends with what is left
            gone(call)

    def _begin(self, program: bytes) -> None:
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(0)  # the template has exited before
        if self._scoped:
            linux.restrict_signals(renames=self._renames)
            linux.filter_system_calls(program)
        if (numpy := sys.modules.get("numpy.random")) is not None:
            with contextlib.suppress(Exception):  # a tool can have put something else there
                numpy.seed()  # `random` seeds itself anew in a forked process

    def _forward(self, *_: object) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, ABORT_SIGNAL)
