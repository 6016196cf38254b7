"""The files that outputs are kept in: how one is written, read, and recognised when nobody owns it.

A file is named by its handle, 128 random bits, so whoever knows the name was told it. It is made with
O_EXCL, locked from its first byte until its writer closes it, and opened through no link. Everything
here blocks and therefore happens on the thread of `spills`, one thing after the other.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import logging
import os
import re
import secrets
import stat

__all__ = ["HANDLE", "Orphans", "Reading", "Writing", "list_handles", "make_private", "new_handle", "unlink"]

logger = logging.getLogger(__name__)

HANDLE = re.compile(r"o-[0-9a-v]{26}", re.ASCII)
# How far a search for a line looks at once: large enough to be quick, small enough to be split into lines.
_SCAN_BYTES = 64 * 1024
# A new file is taken for an orphan only if a sweep meets it before its first lock; twice is already absurd.
_CREATE_ATTEMPTS = 3


def new_handle() -> str:
    """A handle that nobody can guess."""
    return "o-" + base64.b32hexencode(secrets.token_bytes(16)).decode().rstrip("=").lower()


class Writing:
    """A file that is being written; it comes into being with its first bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle = os.path.basename(path)
        self.kept_bytes = 0
        self._descriptor = -1
        self._failed = False

    def write(self, data: bytes | bytearray) -> bool:
        """Append; False when the disk took less than all, and ever after: what is kept has no holes."""
        if self._failed:
            return False
        try:
            if self._descriptor < 0:
                self._descriptor = _create(self._path)
            rest = memoryview(data)
            while rest:
                written = os.write(self._descriptor, rest)
                self.kept_bytes += written
                rest = rest[written:]
        except OSError as error:
            self._failed = True
            logger.warning("%s ends after %d bytes: %s.", self._path, self.kept_bytes, error)
            return False
        return True

    def close(self) -> None:
        """Close and unlock it: it has a row now."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Leave nothing of it."""
        if self._descriptor >= 0:
            unlink([self._path])
            self.close()


class Reading:
    """A file that is being read; one that is deleted meanwhile can be read on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def open(self) -> None:
        """Open it, if it is a file; raises OSError."""
        self._descriptor = _open_no_follow(self._path)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", self._path)

    def read(self, length: int, offset: int) -> bytes:
        """At most so many bytes from there."""
        return os.pread(self._descriptor, length, offset)

    def find_line(self, line: int, end: int) -> int:
        """Where a line begins, counted from 1; the end where there are fewer."""
        newlines_left, offset = max(0, line - 1), 0
        while newlines_left and offset < end:
            block = os.pread(self._descriptor, min(_SCAN_BYTES, end - offset), offset)
            if not block:
                return end
            newlines_in_block = block.count(b"\n")
            if newlines_in_block >= newlines_left:
                return offset + len(block) - len(block.split(b"\n", newlines_left)[-1])
            newlines_left -= newlines_in_block
            offset += len(block)
        return end if newlines_left else offset

    def close(self) -> None:
        """Close it; harmless where it was never open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Orphans:
    """Files without a row that nobody is writing: those whose lock could be had."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def take(self, paths: list[str]) -> None:
        """Lock those that no living writer has; a planted link goes at once, as nobody of ours makes one."""
        for path in paths:
            try:
                descriptor = _open_no_follow(path)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    unlink([path])
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
            else:
                self._descriptors[path] = descriptor

    def paths(self) -> list[str]:
        """Those that were locked."""
        return list(self._descriptors)

    def close(self) -> None:
        """Unlock them."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def make_private(directory: str) -> None:
    """Make a directory that is ours alone; raises OSError where something else is in its place."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", directory)
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def list_handles(directory: str) -> set[str]:
    """The names in a directory that are handles, whatever they are names of."""
    try:
        return {name for name in os.listdir(directory) if HANDLE.fullmatch(name)}
    except OSError:
        return set()


def unlink(paths: list[str]) -> None:
    """Remove files; what is gone already is no news."""
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s cannot be removed: %s.", path, error)


def _create(path: str) -> int:
    """A new file that only we can read, locked until it is closed, so that no sweep takes it for an orphan."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(_CREATE_ATTEMPTS):
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # somebody tidied up
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "it is removed as soon as it is made", path)


def _open_no_follow(path: str) -> int:
    """Open what may have been planted: through no link, and without waiting for the writer of a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
