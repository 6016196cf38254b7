"""The processes that a template forks for each call: which are there, and whether the earlier ones are gone.

There are two for a call: the one that runs it, and one that holds its memory for the kernel and is stopped (see
`worker.template.process`). The worker says when the process of a call is gone. That is checked in the kernel's lists: the
process has exited, its holder is killed, and the cell has no processes but a chain of our own, the template, and at most
two new ones below it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from typing import Final

from toolcelld.cell.processes.process_list import ONE_THREAD_LINKS, ProcessList

NEW_MAX: Final = 2
"""Of the next call: its process, and who holds its memory."""


class Forks:
    """The processes of the running or the next call.

    Args:
        chain: The pids of the keeper, of init in `strict`, and of the template, in order; 0 is skipped.
    """

    def __init__(self, *chain: int) -> None:
        self.pid = 0  # of the current process; 0 while there is none
        self.holder = 0  # of the stopped one that holds its memory; 0 for none
        self._pidfd = self._holder_pidfd = -1
        self._chain = ProcessList(*chain)

    def is_gone(self) -> bool:
        """Whether the process is gone, and nothing that it started can go on. Those of a next call may be there."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        try:
            if not poll.poll(0):
                return False
            if self.holder:
                self._kill_holder()
            others = [pid for pid in self._chain.below() if pid != self.holder]
            if self.pid in others or len(others) > NEW_MAX:
                return False
        except OSError:
            return False
        self._close_current()
        return True

    def _kill_holder(self) -> None:
        # The template did it already. It has loaded the tool's file, so what it says is no proof.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._holder_pidfd, signal.SIGKILL)

    def take(self) -> bool:
        """Take the new processes below the template as the current ones. Return False unless they are there, and alone."""
        found: Sequence[int] = ()
        opened: list[int] = []
        try:
            found = self._chain.below()
            if not 0 < len(found) <= NEW_MAX or {self.pid, self.holder} & set(found):
                return False
            opened += map(os.pidfd_open, found)
            # By now their numbers are not those of other processes.
            same = self._chain.below() == found
            alone = same and all(map(_is_alone, found)) and all(map(_is_stopped, found[1:]))
        except OSError:
            alone = False
        if not alone:
            for pidfd in opened:
                os.close(pidfd)
            return False
        self._close_current()
        self.pid, self.holder = (*found, 0)[:2]
        self._pidfd, self._holder_pidfd = (*opened, -1)[:2]
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the current process. Raises `OSError` when it has exited."""
        if self._pidfd >= 0:
            signal.pidfd_send_signal(self._pidfd, number)

    def _close_current(self) -> None:
        for pidfd in (self._pidfd, self._holder_pidfd):
            if pidfd >= 0:
                os.close(pidfd)
        self._pidfd = self._holder_pidfd = -1
        self.pid = self.holder = 0

    def close(self) -> None:
        self._close_current()
        self._chain.close()


def _is_alone(pid: int) -> bool:
    """Whether a process has one thread and no child. Raises `OSError` when it has exited."""
    if os.stat(f"/proc/{pid}/task").st_nlink != ONE_THREAD_LINKS:
        return False
    with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
        return not file.read(1)


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped, or is going to be before it runs on. Raises `OSError` when it has exited."""
    # The kernel writes the state ahead of what is pending, and the process may stop in between: then it has by now.
    return _stops(pid) or _stops(pid)


def _stops(pid: int) -> bool:
    with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        fields = dict(line.split(b":\t", 1) for line in file.read(4096).splitlines() if b":\t" in line)
    return fields[b"State"][:1] == b"T" or bool(int(fields[b"ShdPnd"], 16) >> signal.SIGSTOP - 1 & 1)
