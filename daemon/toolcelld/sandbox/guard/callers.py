"""A process that asks the guard: the directories its paths begin at, its umask and its descriptors, all from /proc."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from toolcelld import linux

HERE: Final = -100  # AT_FDCWD
INT_BITS: Final = 32
STATUS_BYTES_MAX: Final = 512
UMASK: Final = b"Umask:\t"
PROCESS: Final = b"Tgid:\t"
OWN: Final = (b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/")
"""Beginnings of paths that mean the caller's descriptors."""


class Base:
    """The directory that a path begins at, held to the end of a `with`, which has its descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        if self._descriptor != HERE:
            os.close(self._descriptor)


ROOT: Final = Base(HERE)
"""Of an absolute path, which begins nowhere else."""


def base(thread: int, directory: int, path: bytes) -> Base:
    """Hold the directory that a path of a caller begins at. Raises `OSError`.

    Args:
        thread: The caller.
        directory: The argument of its call: a descriptor or `HERE`, as the kernel passes it.
    """
    if path.startswith(b"/"):
        return ROOT
    number = _signed(directory)
    place = f"/proc/{thread}/cwd" if number == HERE else f"/proc/{thread}/fd/{number}"
    try:
        return Base(os.open(place, os.O_PATH | os.O_CLOEXEC))
    except FileNotFoundError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


@contextmanager
def descriptor_of(thread: int, number: int) -> Generator[int]:
    """Hold a copy of a descriptor of a caller. Raises `OSError`."""
    process = os.pidfd_open(int(_status(thread).partition(PROCESS)[2].split(None, 1)[0]))
    try:
        copied = linux.pidfd_getfd(process, _signed(number))
    finally:
        os.close(process)
    try:
        yield copied
    finally:
        os.close(copied)


def own_descriptor(path: bytes) -> int | None:
    """Return the number of the caller's descriptor that a path means; None for any other path."""
    if path.startswith(OWN) and (number := path.rpartition(b"/")[2]).isdigit():
        return int(number)
    return None


def umask_of(thread: int) -> int:
    """Return the umask of a caller. Raises `OSError`."""
    return int(_status(thread).partition(UMASK)[2][:4], 8)


def _status(thread: int) -> bytes:
    """Return the first lines without the name, which a process gives itself."""
    with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
        return file.read(STATUS_BYTES_MAX).partition(b"\n")[2]


def _signed(number: int) -> int:
    number &= (1 << INT_BITS) - 1
    return number - (1 << INT_BITS) if number >> (INT_BITS - 1) else number
