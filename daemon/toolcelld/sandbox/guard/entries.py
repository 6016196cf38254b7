"""The entry of a directory that a path leads to: the directory is held, and its real path is known.

The path is followed to its last component but one. What is done then is done to a name in the held directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Self

from toolcelld import linux


class Elsewhere(Exception):
    """The call is not the guard's: the caller makes it itself, with the rights that it has there."""


class Entry:
    """A name in a directory, which is held to the end of a `with`."""

    __slots__ = ("directory", "name", "path", "served")

    def __init__(self, directory: int, name: bytes, path: str, *, served: bool) -> None:
        self.directory = directory
        self.name = name  # as the caller wrote it: with a slash at its end, it means a directory
        self.path = path  # absolute, as the guard sees it
        self.served = served  # whether the guard creates and writes in this directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.directory)


def beginnings(places: Iterable[str]) -> tuple[str, ...]:
    """Return what the paths in these directories begin with, with a slash after them."""
    return tuple(place.rstrip("/") + "/" for place in places)


def hold(base: int, path: bytes, served: tuple[str, ...]) -> Entry:
    """Hold the directory of a path's last component.

    Args:
        base: The directory that the path begins at.
        path: Any path.
        served: The `beginnings` of where the guard creates and writes.

    Raises:
        Elsewhere: The last component is no name, or the directory cannot be opened: the kernel tells the caller why.
        OSError: The path is empty.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    bare = path.rstrip(b"/")
    above, _, name = bare.rpartition(b"/")
    if name in (b"", b".", b".."):
        raise Elsewhere
    if path.startswith(b"/"):
        above = b"/" + above
    held = directory(base, above)
    try:
        at = real_path(held)
        within = at if at.endswith("/") else f"{at}/"
        whole = within + os.fsdecode(name)
        return Entry(held, path[len(bare) - len(name) :], whole, served=within.startswith(served))
    except BaseException:
        os.close(held)
        raise


def directory(base: int, path: bytes) -> int:
    """Open a directory to hold it. Raises `Elsewhere` where it cannot be opened."""
    try:
        # Links of /proc would be the guard's own.
        return linux.openat2(
            base, path or b".", os.O_PATH | os.O_DIRECTORY, resolve=linux.RESOLVE_NO_MAGICLINKS
        )
    except OSError:
        raise Elsewhere from None


def real_path(descriptor: int) -> str:
    """Return the path of what a descriptor holds."""
    return os.readlink(f"/proc/self/fd/{descriptor}")
