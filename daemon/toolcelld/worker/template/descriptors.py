"""What a call can change in the open files that the template shares with the process of each call.

The process of a call has the descriptors of its template, and what is open behind a descriptor is one thing for all
processes that have it. Each property of it that a process can change and another one can see is here, in one of three ways:

- It is set again: status flags, who gets signals of it and which, locks, and times.
- It is compared, and a call that changed it ends the cell: its owner and mode, the size of a pipe and its hint for
  writing, the name of a socket, each option of a socket that can be read and set, and whether a direction was shut down.
- It is emptied: what the daemon sent and the call did not read, such as an answer that came late or was read in part.
  Pipes are emptied by the daemon, before each call.

Descriptor 0 is opened anew: it is the machine's /dev/null, of which only the lock belongs to what was opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import stat
import struct
from collections.abc import Generator, Sequence
from typing import Final

from toolcelld.sandbox.setup import ABORT, PROTOCOL, REPORTS, open_nothing

NUMBERS: Final = (0, 1, 2, PROTOCOL, ABORT, REPORTS)
"""All that a template has."""
CHANGING: Final = (55, 77)
"""SO_MEMINFO, which counts what is in the socket, and SO_PEERPIDFD, which opens a descriptor."""
FIXED: Final = (3, 17, 19, 38, 39, 48, 56, 57, 59)
"""Type, domain, protocol, peer and the like, which no process can set; each that is read costs every call a system call."""
OPTIONS: Final = tuple(number for number in range(1, 128) if number not in (*CHANGING, *FIXED))
"""All other numbers that the kernel may have options for, as it gets new ones."""
OPTION_BYTES_MAX: Final = 64
NUMBER_BYTES: Final = 4
LEVEL: Final = socket.SOL_SOCKET
F_SETSIG: Final = 10
F_OFD_SETLK: Final = 37
F_GET_RW_HINT: Final = 1035  # <linux/fcntl.h>, as those above
WHOLE: Final = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
"""A `struct flock` that takes every range."""
READ_BYTES: Final = 64 * 1024


class SharedDescriptors:
    """The descriptors as they are before the first call.

    Args:
        numbers: Those of a worker by default.
    """

    def __init__(self, numbers: Sequence[int] = NUMBERS) -> None:
        self._found = {number: os.fstat(number) for number in numbers}
        self._flags = {number: fcntl.fcntl(number, fcntl.F_GETFL) for number in numbers}
        self._sockets = {
            number: _readable_options(number)
            for number, found in self._found.items()
            if stat.S_ISSOCK(found.st_mode)
        }
        self._states = {number: self._state(number) for number in numbers}

    def reset(self) -> bool:
        """Make them what they were. Return False if that is not possible."""
        try:
            self._set_again()
            return all(self._state(number) == state for number, state in self._states.items())
        except OSError:
            return False

    def _set_again(self) -> None:
        for number, flags in self._flags.items():
            if number == 0:
                open_nothing()
                continue
            found = self._found[number]
            fcntl.fcntl(number, fcntl.F_SETFL, flags)
            fcntl.fcntl(number, fcntl.F_SETOWN, 0)
            fcntl.fcntl(number, F_SETSIG, 0)
            fcntl.fcntl(number, F_OFD_SETLK, WHOLE)
            fcntl.flock(number, fcntl.LOCK_UN)
            os.utime(number, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _state(self, number: int) -> tuple[object, ...]:
        """Return what is compared; of a socket, when it is empty."""
        found = os.fstat(number)
        of_inode = found.st_mode, found.st_uid, found.st_gid
        if number in self._sockets:
            return (*of_inode, *_state_of_socket(number, self._sockets[number]))
        if stat.S_ISFIFO(found.st_mode):
            return (*of_inode, fcntl.fcntl(number, fcntl.F_GETPIPE_SZ), _hint(number))
        return of_inode


@contextlib.contextmanager
def _socket(number: int) -> Generator[socket.socket]:
    # With its kind, as it costs four system calls to find out.
    shared = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, number)
    try:
        yield shared
    finally:
        shared.detach()


def _readable_options(number: int) -> Sequence[tuple[int, int]]:
    """Return the numbers and sizes of options that can be read."""
    options: list[tuple[int, int]] = []
    with _socket(number) as shared:
        for option in OPTIONS:
            with contextlib.suppress(OSError):
                options.append((option, len(shared.getsockopt(LEVEL, option, OPTION_BYTES_MAX))))
    return options


def _state_of_socket(number: int, options: Sequence[tuple[int, int]]) -> tuple[object, ...]:
    """Drop what the daemon sent to the call, and to no other; then return what is compared."""
    with _socket(number) as shared:
        with contextlib.suppress(BlockingIOError):
            while shared.recv(READ_BYTES, socket.MSG_DONTWAIT):
                pass
        read = shared.getsockopt
        # One number is read in half the time of some bytes.
        found = [
            read(LEVEL, option) if size == NUMBER_BYTES else read(LEVEL, option, OPTION_BYTES_MAX)
            for option, size in options
        ]
        name = shared.getsockname()
    poll = select.poll()
    poll.register(number, select.POLLRDHUP | select.POLLHUP)
    ended = [events & (select.POLLRDHUP | select.POLLHUP) for _, events in poll.poll(0)]
    return name, *found, *ended


def _hint(number: int) -> bytes:
    with contextlib.suppress(OSError):  # a kernel that has none for pipes
        return fcntl.fcntl(number, F_GET_RW_HINT, bytes(8))
    return b""
