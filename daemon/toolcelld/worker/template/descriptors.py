"""What a call can change in the open files that the template shares with the process of each call.

Status flags, options of sockets, the sizes of pipes, and whether a direction of a socket was shut down belong to what is
open, and so to all processes that have it. What can be set again is; what cannot ends the cell.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
from collections.abc import Sequence
from typing import Final

from toolcelld.sandbox.setup import ABORT, PROTOCOL, REPORTS

__all__ = ["SharedDescriptors"]

NUMBERS: Final = (0, 1, 2, PROTOCOL, ABORT, REPORTS)
SO_PEEK_OFF: Final = 42  # <asm-generic/socket.h>
OPTIONS: Final = (
    socket.SO_RCVLOWAT, socket.SO_RCVBUF, socket.SO_SNDBUF, socket.SO_PRIORITY, socket.SO_PASSCRED, socket.SO_KEEPALIVE,
    socket.SO_OOBINLINE, SO_PEEK_OFF,
)  # fmt: skip
"""Options with one number."""
TIMES: Final = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO, socket.SO_LINGER)
"""Options with two: of a time or of what `close` waits for."""
BYTES_MAX: Final = 16


class SharedDescriptors:
    """The descriptors as they are before the first call.

    Args:
        numbers: Those of a worker by default.
    """

    def __init__(self, numbers: Sequence[int] = NUMBERS) -> None:
        self._flags = {number: fcntl.fcntl(number, fcntl.F_GETFL) for number in numbers}
        self._states = {number: _state(number) for number in numbers}

    def reset(self) -> bool:
        """Make them what they were. Return False if that is not possible."""
        for number, flags in self._flags.items():
            fcntl.fcntl(number, fcntl.F_SETFL, flags)
        if 0 in self._flags:  # a lock belongs to what was opened
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(null, 0)
            os.close(null)
        return all(_state(number) == state for number, state in self._states.items())


def _state(number: int) -> tuple[object, ...]:
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode):
        return (fcntl.fcntl(number, fcntl.F_GETPIPE_SZ),)
    if not stat.S_ISSOCK(mode):
        return ()
    with socket.socket(fileno=os.dup(number)) as shared:
        options = [shared.getsockopt(socket.SOL_SOCKET, option) for option in OPTIONS]
        times = [shared.getsockopt(socket.SOL_SOCKET, option, BYTES_MAX) for option in TIMES]
    poll = select.poll()
    poll.register(number, select.POLLRDHUP | select.POLLHUP)
    ended = [events & (select.POLLRDHUP | select.POLLHUP) for _, events in poll.poll(0)]
    return (*options, *times, *ended)
