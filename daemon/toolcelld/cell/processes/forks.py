"""The processes that a template forks, one for each call: which one is there, and whether the earlier ones are gone.

The worker says when the process of a call is gone. That is checked in the kernel's lists: the process has exited, and the
cell has no processes but a chain of our own, the template, and one new process below it, each with one thread.
"""

from __future__ import annotations

import os
import select
import signal

from toolcelld.cell.processes.process_list import ONE_THREAD_LINKS, ProcessList

__all__ = ["Forks"]


class Forks:
    """The process of the running or the next call.

    Args:
        chain: The pids of the keeper, of init in `strict`, and of the template, in order; 0 is skipped.
    """

    def __init__(self, *chain: int) -> None:
        self.pid = 0  # of the current process; 0 while there is none
        self._pidfd = -1
        self._chain = ProcessList(*chain)

    def is_gone(self) -> bool:
        """Whether the process is gone, and nothing that it started is left. A next one may be there."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        try:
            if not poll.poll(0) or self._chain.below() == self.pid:
                return False
        except OSError:
            return False
        self._close_current()
        return True

    def take(self) -> bool:
        """Take the new process below the template as the current one. Return False unless it is there, and alone."""
        pidfd, found = -1, 0
        try:
            if (found := self._chain.below()) in (0, self.pid):
                return False
            pidfd = os.pidfd_open(found)
            # By now its number is not that of another process.
            alone = self._chain.below() == found and _is_alone(found)
        except OSError:
            alone = False
        if not alone:
            if pidfd >= 0:
                os.close(pidfd)
            return False
        self._close_current()
        self.pid, self._pidfd = found, pidfd
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the current process. Raises `OSError` when it has exited."""
        if self._pidfd >= 0:
            signal.pidfd_send_signal(self._pidfd, number)

    def _close_current(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd, self.pid = -1, 0

    def close(self) -> None:
        """Close everything."""
        self._close_current()
        self._chain.close()


def _is_alone(pid: int) -> bool:
    """Whether a process has one thread and no child. Raises `OSError` when it has exited."""
    if os.stat(f"/proc/{pid}/task").st_nlink != ONE_THREAD_LINKS:
        return False
    with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
        return not file.read(1)
