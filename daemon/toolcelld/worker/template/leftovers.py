"""What calls leave in the file systems of their cell: files in its temporary directory and in its shared memory.

A mount point in a temporary directory is a place that was granted to the tool. Neither it nor the directories above it are
removed, and no other file system is entered: a call can rename a directory that has a mount point below it.

Most calls leave nothing, and each look at a directory delays an outcome by ten system calls. In a file system of the cell
alone, which is in memory, whatever is changed in a directory or of it changes its `ctime`, which no process can set. So one
that has the times of an earlier look is as it was then, if the clock of these times had gone on before that look.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from typing import Final, TypeAlias

from toolcelld.sandbox.setup import CellSetup

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # of the cell alone
SEGMENTS: Final = "/proc/sysvipc/shm"
REMOVED_MAX: Final = 10_000
"""Entries that are removed after one call; it takes less time to make a new cell than to remove more."""

CLOCK: Final = 5
"""CLOCK_REALTIME_COARSE of <linux/time.h>, which Python does not name: that of the times of files, or behind it."""
FS_IOC_GETFLAGS: Final = 0x80086601  # <linux/fs.h>; what `lsattr` shows

_Identity: TypeAlias = tuple[int, int, int, int, int, bytes, tuple[tuple[str, bytes], ...]]
"""The device, the inode, the mode, the owner, the group, the flags and the extended attributes of a directory."""


class Leftovers:
    """Finds and removes them. To be made before the file is loaded.

    Args:
        cell: What the cell is for.
    """

    def __init__(self, cell: CellSetup) -> None:
        self._strict = cell.policy.enclosure == "strict"
        self._roots = [cell.tmpdir] if cell.tmpdir else []
        mounted = _mount_points()
        if self._strict and SHARED_MEMORY in mounted:
            self._roots.append(SHARED_MEMORY)
        # Directories that stay, as they are, and mount points.
        self._kept: dict[str, _Identity | None] = {root: _identity(root) for root in self._roots}
        for root in self._roots:
            for path in mounted:
                # A private temporary directory hides the mount points of the host below it, which are still listed.
                if path.startswith(f"{root}/") and os.path.lexists(path):
                    self._kept[path] = None
                    while (path := os.path.dirname(path)) != root:
                        self._kept.setdefault(path, _identity(path))
        self._times = {path: _times(path) for path, found in self._kept.items() if found is not None}
        self._seen: dict[str, os.stat_result] = {}  # as they were found clean, of those whose `ctime` tells
        self._removed = 0

    def is_clean(self) -> bool:
        """Whether nothing is left."""
        return self._has_only_kept() and not self._has_segments()

    def remove(self) -> bool:
        """Remove what is left. Return False if that is not possible."""
        self._removed = 0
        try:
            now_ns = time.clock_gettime_ns(CLOCK)
            found = {path: os.lstat(path) for path, known in self._kept.items() if known is not None}
            changed = [path for path, now in found.items() if not _is_same(now, self._seen.get(path))]
            if any(_identity(path) != self._kept[path] for path in changed):
                return False  # a call put something else there
            for directory in changed:
                self._empty(directory, found[directory], now_ns)
        except (OSError, RecursionError):
            return False
        # Who could put something there now is gone, so only what was removed is looked for once more.
        return not self._has_segments() if not self._removed else self.is_clean()

    def _empty(self, directory: str, found: os.stat_result, now_ns: int) -> None:
        """Remove what is in a directory that stays. Take note of one that was empty, as it was at that time."""
        removed = self._removed
        for name in _names(directory):
            if (path := os.path.join(directory, name)) not in self._kept:
                self._remove(path, found.st_dev)
        if _times(directory) != self._times[directory]:
            os.utime(directory, ns=self._times[directory])
        elif self._strict and removed == self._removed and found.st_ctime_ns < now_ns:
            self._seen[directory] = found

    def _remove(self, path: str, device: int) -> None:
        self._removed += 1
        found = os.lstat(path)
        if found.st_dev != device or self._removed > REMOVED_MAX:
            raise OSError("it is on another file system, or there is too much")
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path)
            return
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            self._remove(os.path.join(path, name), device)
        os.rmdir(path)

    def _has_only_kept(self) -> bool:
        for path, found in self._kept.items():
            if found is None:
                continue
            with contextlib.suppress(OSError):
                names = _names(path)
                if _identity(path) == found and all(os.path.join(path, name) in self._kept for name in names):
                    continue
            return False
        return True

    def _has_segments(self) -> bool:
        """Whether the cell's own IPC namespace has shared memory that belongs to no process."""
        if not self._strict:
            return False
        with open(SEGMENTS, "rb") as file:
            return len(file.readlines()) > 1


def _identity(path: str) -> _Identity:
    found = os.lstat(path)
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system that has none
        names = []
    attributes = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in sorted(names))
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid, _flags(path), attributes


def _flags(path: str) -> bytes:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""  # it cannot be read, or is none any more: that its mode says
    try:
        return fcntl.ioctl(opened, FS_IOC_GETFLAGS, bytes(8))
    except OSError:  # a file system that has none
        return b""
    finally:
        os.close(opened)


def _names(path: str) -> list[str]:
    """Return what a directory has, and leave its times as they are where it is our own."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOATIME | os.O_CLOEXEC)
    except PermissionError:
        return os.listdir(path)
    try:
        return os.listdir(opened)
    finally:
        os.close(opened)


def _is_same(now: os.stat_result, seen: os.stat_result | None) -> bool:
    return (
        seen is not None
        and tuple(now) == tuple(seen)
        and now.st_ctime_ns == seen.st_ctime_ns
        and ((now.st_atime_ns, now.st_mtime_ns) == (seen.st_atime_ns, seen.st_mtime_ns))
    )


def _times(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_atime_ns, found.st_mtime_ns


def _mount_points() -> set[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        paths = [line.split()[4] for line in file]
    unescaped = (re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), path) for path in paths)
    return {os.fsdecode(path) for path in unescaped}
