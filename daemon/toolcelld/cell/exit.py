"""How a cell ended, and how that is proven."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal

from toolcelld.cell.kernel_log import KernelKill
from toolcelld.cell.processes.usage import CellUsage

Proof = Literal["cgroup", "namespace", "landlock", "children", "zygote", "none"]


@dataclass(frozen=True, slots=True)
class CellExit:
    """How a cell ended."""

    status: int | None  # the worker's wait status; None when it is unknown
    cpu_seconds: float
    memory_peak_bytes: int
    killed: int  # processes that had to be killed
    proof: Proof  # what showed that the cell is empty
    stderr: str  # the end of what the last call printed
    out_of_memory: bool = False  # the kernel killed a process because the cell passed its memory limit
    usage: CellUsage | None = None  # at the last measurement, if there was one
    stdout: str = ""  # the end of what the last call printed
    kernel: KernelKill | None = None  # what the kernel's log says of the kill, where the daemon may read it
    stack: tuple[str, ...] = ()  # where it was in Python when a signal ended it, the innermost frame last

    @property
    def proven(self) -> bool:
        """Whether the kernel guarantees that no process is left; a process listing does not."""
        return self.proof in ("cgroup", "namespace", "landlock")

    def cause(self) -> str:
        """Return the signal or the exit status as an outcome names it: "SIGSEGV", "exit 3", "lost"."""
        return cause_of(self.status)


def cause_of(status: int | None) -> str:
    """Return the cause that a wait status is; None for one that is unknown."""
    if status is None:
        return "lost"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"
    return f"exit {os.WEXITSTATUS(status)}"
