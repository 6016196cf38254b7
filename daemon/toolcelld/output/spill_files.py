"""Writes and reads the files of spilled outputs, and finds orphaned ones.

A file is named by its handle, 128 random bits, so the name cannot be guessed. It is made with O_EXCL, locked from its
first byte until its writer closes it, and never opened through a symbolic link. All functions block; the thread of
`spill` runs them in order.
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

from toolcelld.files.paths import held

logger = logging.getLogger(__name__)

HANDLE = re.compile(r"o-[0-9a-v]{26}", re.ASCII)
# Read at once while searching for a line: large enough to be fast, small enough to be split into lines.
_SCAN_BYTES = 64 * 1024
# A new file is taken for an orphan only if a sweep finds it before its first lock; that is unlikely even twice.
_CREATE_ATTEMPTS = 3


def new_handle() -> str:
    """Return a new random handle."""
    return "o-" + base64.b32hexencode(secrets.token_bytes(16)).decode().rstrip("=").lower()


class Writing:
    """A file that is being written; it is created with its first bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle = os.path.basename(path)
        self.kept_bytes = 0
        self.failure = ""  # why nothing more is written
        self._descriptor = -1

    def write(self, data: bytes | bytearray) -> bool:
        """Append data; False if that fails, and for all later data, so that the file has no gaps."""
        if self.failure:
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
            self.failure = error.strerror or str(error)
            logger.warning("%s ends after %d bytes: %s.", self._path, self.kept_bytes, error)
            return False
        return True

    def close(self) -> None:
        """Close and unlock it, after its row has been committed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Close and delete it."""
        if self._descriptor >= 0:
            unlink([self._path])
            self.close()


class Reading:
    """A file that is being read, also after it has been deleted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def open(self) -> None:
        """Open it if it is a regular file. Raises `OSError`."""
        self._descriptor = _open_no_follow(self._path)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", self._path)

    def read(self, length: int, offset: int) -> bytes:
        """Read at most `length` bytes at `offset`."""
        return os.pread(self._descriptor, length, offset)

    def find_line(self, line: int, end: int) -> int:
        """Return the offset of a line, counted from 1; `end` where there are fewer lines."""
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
        """Close it, if it is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Orphans:
    """Locks files that have no writer, which may be orphans."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def take(self, paths: list[str]) -> None:
        """Lock the files that have no writer; delete symbolic links at once, as the daemon makes none."""
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
        """Return the files that were locked."""
        return list(self._descriptors)

    def close(self) -> None:
        """Unlock them."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def make_private(directory: str) -> None:
    """Make a directory that only our user can access. Raises `OSError` where something else is in its place."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with held(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", directory)
        os.fchmod(descriptor, 0o700)


def list_handles(directory: str) -> set[str]:
    """Return the names in a directory that have the form of a handle."""
    try:
        return {name for name in os.listdir(directory) if HANDLE.fullmatch(name)}
    except OSError:
        return set()


def unlink(paths: list[str]) -> None:
    """Remove files; those that do not exist are ignored."""
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s cannot be removed: %s.", path, error)


def _create(path: str) -> int:
    """Create a file that only our user can read, locked until it is closed, so that no sweep takes it for an orphan."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(_CREATE_ATTEMPTS):
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # the directory was deleted
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "it is removed as soon as it is created", path)


def _open_no_follow(path: str) -> int:
    """Open a path of unknown type: not through a symbolic link, and without blocking on a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
