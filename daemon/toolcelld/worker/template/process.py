"""The template: it forks the process of the next call, and waits for it.

The template has confined itself and loaded the file, as every worker. The process that it forks reads one call, runs it,
reports, runs the `atexit` functions and exits. Then the template removes what the call left in the cell's own temporary
directories, says `gone`, and forks again. The process of the next call says `hello`. So a call finds what the import made
and nothing of an earlier call, and it pays neither for the start of a process nor for the import.

Nor for the end of a process: the kernel takes milliseconds to free the memory of one. Before its call the process starts
another one that holds its memory and is stopped (`linux.hold_memory`). So it is gone, with its descriptors, locks, timers
and threads, when it exits, and its memory is freed with the holder, which is killed then and never runs.

The forked process enters one more signal scope, within which neither the template nor the holder is: it can neither signal
nor trace them, nor write to the template's memory. What acts on other processes by number, and not by signal, is refused
for the numbers of both, of the template's guard and of the cell's init.
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
from toolcelld.sandbox.setup import ABORT_SIGNAL, CellPlan
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.worker.template.descriptors import SharedDescriptors
from toolcelld.worker.template.leftovers import Leftovers

FINISHED: Final = 200
"""The exit status of a process whose call is over. A tool that exits with it itself has broken the protocol."""


class Template:
    """Forks one process after the other, each for one call.

    Args:
        plan: How the cell was built.
        leftovers: Removes what a call left in the cell's own file systems.
    """

    def __init__(self, plan: CellPlan, leftovers: Leftovers) -> None:
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
        above = os.getppid()
        shared = SharedDescriptors()
        gc.freeze()
        for call in itertools.count(1):
            self._child = os.fork()
            if not self._child:
                self._begin(above)
                return
            _, status = os.waitpid(self._child, 0)
            holder = self._holder()
            if (code := os.waitstatus_to_exitcode(status)) != FINISHED:
                self._end(holder)
                linux.exit_as(code)
            if not (shared.reset() and self._leftovers.remove()):
                self._end(holder)  # which may have had the last segment of System V
                holder = 0
                if not (shared.reset() and self._leftovers.remove()):
                    os._exit(0)  # and the cell ends with what is left
            gone(call)
            self._end(holder)  # it takes a processor for the milliseconds in which the outcome is on its way

    def _begin(self, above: int) -> None:
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(0)  # the template has exited before
        if self._scoped:
            linux.set_name("toolcell:holder")
            ours = 1, above, self._pid, linux.hold_memory()
            linux.set_name("toolcell:worker")
            linux.restrict_signals(renames=self._renames)
            linux.filter_system_calls(seccomp.protecting(ours))
        if (numpy := sys.modules.get("numpy.random")) is not None:
            with contextlib.suppress(Exception):  # a tool can have put something else there
                numpy.seed()  # `random` seeds itself anew in a forked process

    def _holder(self) -> int:
        """Return what holds the memory of the process that has exited, or 0 for none."""
        holder, *others = linux.first_children(self._pid) or (0,)
        if others:
            os._exit(0)  # the call made itself a sibling, with which the cell ends
        return holder

    @staticmethod
    def _end(holder: int) -> None:
        if holder:
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)

    def _forward(self, *_: object) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, ABORT_SIGNAL)
