"""Reads a file of unknown type, without blocking and up to a bound.

A path in a user's directory may be a FIFO without a writer, a device with side effects on opening, or a file of a
terabyte. Only regular files are opened; if another type replaces one before it is opened, opening does not block.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

from toolcelld.files.paths import held

# O_NONBLOCK: a FIFO may have replaced the file since its type was looked at.
FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NotRegularError(Exception):
    """The path is a FIFO, a socket, a device or a directory; the text says which."""


class TooLargeError(Exception):
    """The file has more bytes than the bound."""


def read_regular(path: str, bytes_max: int, *, opened: Callable[[str, int], int] = os.open) -> bytes:
    """Return the content of a regular file; never blocks on the other end of a pipe.

    Args:
        path: The file; symbolic links are followed.
        bytes_max: The largest size.
        opened: Opens it in place of `os.open`, for a caller that does not follow links.

    Raises:
        OSError: The file cannot be read.
        NotRegularError: It is not a regular file.
        TooLargeError: It has more than `bytes_max` bytes.
    """
    _check(os.stat(path).st_mode)
    with held(opened(path, FLAGS)) as descriptor:
        status = os.fstat(descriptor)
        _check(status.st_mode)
        # The size is only a hint: files in /proc have none, and others grow while they are read.
        content = os.read(descriptor, min(status.st_size, bytes_max) + 1)
        while len(content) <= bytes_max and (more := os.read(descriptor, bytes_max + 1 - len(content))):
            content += more
    if len(content) > bytes_max:
        raise TooLargeError(path)
    return content


def _check(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
    raise NotRegularError(kinds.get(stat.S_IFMT(mode), "a device"))
