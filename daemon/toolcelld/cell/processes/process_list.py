"""Checks a cell for leftover processes, in the kernel's lists of children.

It is checked after every warm call, so the lists are kept open: reading one again takes one system call.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Final

ONE_THREAD_LINKS: Final = 3
"""Links of /proc/PID/task: two of its own and one for each thread."""


class ProcessList:
    """The lists of children of a cell whose processes form a chain: keeper, init in `strict`, worker.

    Args:
        pids: The processes of the chain, in order; 0 is skipped.

    Raises:
        OSError: A process has exited.
    """

    __slots__ = ("children", "tasks")

    def __init__(self, *pids: int) -> None:
        chain = [pid for pid in pids if pid]
        self.children: list[tuple[int, bytes]] = []
        """A descriptor of each list, and what it has while the cell has no other process."""
        self.tasks = -1
        """A descriptor of the worker's list of threads."""
        try:
            for pid, child in itertools.zip_longest(chain, chain[1:]):
                expected = str(child).encode() if child is not None else b""
                self.children.append((_open(f"/proc/{pid}/task/{pid}/children"), expected))
            self.tasks = _open(f"/proc/{chain[-1]}/task")
        except OSError:
            self.close()
            raise

    def below(self) -> Sequence[int]:
        """Return the children of the last process of the chain, in the order of their start; of more than five the first.

        Raises `OSError`, also where the cell has other processes than these and their descendants.
        """
        *above, (last, _) = self.children
        clear = all(os.pread(number, 64, 0).strip() == expected for number, expected in above)
        if not clear or os.fstat(self.tasks).st_nlink != ONE_THREAD_LINKS:
            raise ProcessLookupError("the cell has other processes or threads")
        return [int(pid) for pid in os.pread(last, 64, 0).split()]

    def close(self) -> None:
        for number in (self.tasks, *(number for number, _ in self.children)):
            if number != -1:
                os.close(number)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
