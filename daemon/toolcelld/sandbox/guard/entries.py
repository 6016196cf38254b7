"""The entry of a directory that a path leads to: the directory is held, and its real path is known.

The path is followed to its last component but one. What is done then is done to a name in the held directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from toolcelld import linux
from toolcelld.files.paths import is_below_any


class Elsewhere(Exception):
    """The call is not the guard's: the caller makes it itself, with the rights that it has there."""


class Entry(NamedTuple):
    """A name in a directory that is held."""

    directory: int
    name: str
    """As the caller wrote it: with a slash at its end, it means a directory."""
    path: str
    """Absolute, as the guard sees it."""
    served: bool
    """Whether the guard creates and writes in this directory."""


@contextmanager
def hold(base: int, path: bytes, places: Sequence[str]) -> Generator[Entry]:
    """Hold the directory of a path's last component.

    Args:
        base: The directory that the path begins at.
        path: Any path.
        places: Where the guard creates and writes.

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
    with directory(base, above) as (held, at):
        whole = os.path.join(at, os.fsdecode(name))
        yield Entry(held, os.fsdecode(path[len(bare) - len(name) :]), whole, is_below_any(at, places))


@contextmanager
def directory(base: int, path: bytes) -> Generator[tuple[int, str]]:
    """Hold a directory; yield it with its real path. Raises `Elsewhere` where it cannot be opened."""
    try:
        # Links of /proc would be the guard's own.
        held = linux.openat2(
            base,
            os.fsdecode(path or b"."),
            os.O_PATH | os.O_DIRECTORY,
            resolve=linux.RESOLVE_NO_MAGICLINKS,
        )
    except OSError:
        raise Elsewhere from None
    try:
        yield held, real_path(held)
    finally:
        os.close(held)


def real_path(descriptor: int) -> str:
    """Return the path of what a descriptor holds."""
    return os.readlink(f"/proc/self/fd/{descriptor}")
