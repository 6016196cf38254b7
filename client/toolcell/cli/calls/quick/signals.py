"""^C and a polite kill, as bytes of a pipe that a loop waits for."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

EXIT_ABORTED = 130  # Exit.ABORTED, which need not be imported


class Signals:
    """The signals of the command.

    Before the call is sent ^C ends the command at once; afterwards the first signal aborts the call, and the second one
    ends the command. A signal that is ignored is ignored until the call is sent.

    Attributes:
        pipe: The descriptor that can be read when a signal has come.
    """

    def __init__(self) -> None:
        self._module: Any = __import__("_signal")  # `signal` loads enum
        self.pipe, self._other = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked = 0
        self._leave: Callable[[], object] | None = None
        self._before = self._module.getsignal(self._module.SIGINT)
        if self._before is self._module.SIG_DFL:
            self._module.signal(self._module.SIGINT, _leave)

    def watch(self, leave: Callable[[], object]) -> None:
        """Have signals wake the loop from now on; `leave` is called with the second one, and does not return."""
        self._leave = leave
        self._module.set_wakeup_fd(self._other, warn_on_full_buffer=False)
        for number in (self._module.SIGINT, self._module.SIGTERM):
            self._module.signal(number, self._interrupt)

    def ended(self) -> None:
        """Have ^C end the command at once again: the call has ended."""
        self._module.set_wakeup_fd(-1)
        self._module.signal(self._module.SIGINT, _leave)
        self._module.signal(self._module.SIGTERM, self._module.SIG_DFL)

    def close(self) -> None:
        """Let signals do what they did before, unless a call was made; the process ends then."""
        if self._leave is None:
            self._module.signal(self._module.SIGINT, self._before)
        os.close(self.pipe)
        os.close(self._other)

    def _interrupt(self, *_: object) -> None:
        self._asked += 1
        if self._asked > 1 and self._leave is not None:
            self._leave()


def _leave(*_: object) -> None:
    os._exit(EXIT_ABORTED)
