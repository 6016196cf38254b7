"""How a cell ended, and who says so."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal

from toolcelld.cell.usage import Usage

__all__ = ["CellExit", "Proof"]

Proof = Literal["cgroup", "landlock", "children", "zygote", "none"]


@dataclass(frozen=True, slots=True)
class CellExit:
    """How a cell ended."""

    status: int | None  # the worker's wait status; None when nobody could say
    cpu_seconds: float
    memory_peak_bytes: int
    killed: int  # processes that had to be killed
    proof: Proof  # who saw the cell empty
    stderr: str  # the last lines, of the last call only
    out_of_memory: bool = False  # the kernel ended somebody in it for that
    usage: Usage | None = None  # when it was last looked at, if ever

    @property
    def proven(self) -> bool:
        """Whether the kernel, and not a listing, said that nothing is left."""
        return self.proof in ("cgroup", "landlock")

    def cause(self) -> str:
        """The signal or the exit, as an Outcome names it."""
        if self.status is None:
            return "lost"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            try:
                return signal.Signals(number).name
            except ValueError:
                return f"signal {number}"
        return f"exit {os.WEXITSTATUS(self.status)}"
