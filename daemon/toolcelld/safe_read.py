"""Reading a file that somebody else put there: never waiting, never more than a bound.

A path in a user's directory may be a FIFO that nobody writes, a device whose opening does something,
or a terabyte. What is not a regular file is not opened; what became one meanwhile is not waited for.
"""

from __future__ import annotations

import os
import stat

__all__ = ["NotRegularError", "TooLargeError", "read_regular"]


class NotRegularError(Exception):
    """It is a FIFO, a socket, a device or a directory; the text says which."""


class TooLargeError(Exception):
    """It has more bytes than were asked for."""


def read_regular(path: str, bytes_max: int) -> bytes:
    """The bytes of a regular file. Raises `OSError`, `NotRegularError` or `TooLargeError`; never blocks on a peer."""
    _check(os.stat(path).st_mode)
    # Not blocking: between the look and the opening somebody may have put a FIFO there.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        _check(status.st_mode)
        # The size is a hint: files of /proc have none, others grow while they are read.
        content = os.read(descriptor, min(status.st_size, bytes_max) + 1)
        while len(content) <= bytes_max and (more := os.read(descriptor, bytes_max + 1 - len(content))):
            content += more
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise TooLargeError(path)
    return content


def _check(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
    raise NotRegularError(kinds.get(stat.S_IFMT(mode), "a device"))
