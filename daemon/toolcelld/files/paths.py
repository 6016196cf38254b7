"""Opens paths without following links, and compares what is there with what was there before.

A path names whatever is at it now. Who may write in one of its directories can exchange a directory for a link between
a check and the use of the same path, so a path that others control is opened once, without following any link, and
everything else is done with the descriptor. `Place` is what such a descriptor was open on, as a value: daemon and cell
open the path each for itself, because a descriptor of one mount namespace cannot be mounted in another one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final, NamedTuple

from toolcell._paths import is_below
from toolcelld import linux

UNSUPPORTED: Final = (errno.ENOSYS, errno.EPERM)
"""Errors of openat2 on kernels before 5.6, and under filters of containers that do not know it."""


class Place(NamedTuple):
    """A path and the file, directory or link that was at it."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> Place:
        return cls(path, status.st_dev, status.st_ino)

    def is_at(self, status: os.stat_result) -> bool:
        """Return whether a status is of the same file, directory or link; True for every status with inode 0."""
        return not self.inode or (status.st_ino == self.inode and status.st_dev == self.device)


@contextmanager
def held(descriptor: int) -> Generator[int]:
    """Hold a descriptor for the block; it is closed after it."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Exchanged(OSError):
    """Another file or directory is at a path than the one that was found there before."""


def open_plain(path: str, flags: int) -> int:
    """Open a path none of whose components is a link; return a descriptor that is closed on exec.

    Args:
        path: Absolute.
        flags: As for `os.open`. With O_PATH and O_NOFOLLOW the last component may be a link, which is opened itself.

    Raises:
        OSError: ELOOP where a component is a link, and everything that `os.open` raises.
    """
    try:
        return linux.openat2(linux.AT_FDCWD, path, flags)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    return _open_by_steps(path, flags)


def _open_by_steps(path: str, flags: int) -> int:
    """Do the same with one system call for each component."""
    *above, last = [part for part in path.split("/") if part] or ["."]
    here = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for part in above:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        opened = os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)
    if not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return opened


def open_place(place: Place) -> int:
    """Open a place with O_PATH; raise `Exchanged` if something else is there."""
    opened = open_plain(place.path, os.O_PATH | os.O_NOFOLLOW)
    if place.is_at(os.fstat(opened)):
        return opened
    os.close(opened)
    raise Exchanged(errno.ESTALE, "something else is there than when the session began", place.path)


def is_below_any(path: str, directories: Iterable[str]) -> bool:
    """Return whether a path is one of these directories or lies in one of them, by its text."""
    return any(is_below(path, directory) for directory in directories)
