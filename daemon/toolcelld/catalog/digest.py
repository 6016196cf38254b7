"""The digest of a tool directory; it is the key of cached descriptions and of cells.

It covers every regular file below the directory, because a tool may import helper modules: a digest of the tool file
alone would reuse a worker that has loaded an old helper. It also covers the interpreter and Toolcell's version,
because both affect how a file is described.

Beyond a budget of bytes, size and modification time stand for the content, so that a large directory such as
`node_modules` does not delay the opening of a session.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice

from toolcelld.safe_read import NotRegularError, TooLargeError, read_regular

__all__ = ["digest_below", "listed"]

ENTRIES_MAX = 20_000  # below one directory: about 0.3 s for the stats alone
BYTES_MAX = 32 * 2**20  # read for one digest: about 50 ms
FILE_BYTES_MAX = 2**20  # larger files are data
DEPTH_MAX = 16
UNWATCHED = frozenset({"__pycache__", ".git"})  # written by running tools and by git


def digest_below(directory: str, python: str | None, contents: Mapping[str, bytes]) -> bytes:
    """Return the digest of the files below a directory, its interpreter and Toolcell's version.

    `contents` holds the files that were read already, by path relative to the directory.
    """
    total = hashlib.blake2b(digest_size=20)
    total.update(f"{_version()}\0{python or sys.executable}\0{python and os.path.realpath(python)}".encode())
    budget = BYTES_MAX
    for path, entry in islice(_below(directory, "", 0), ENTRIES_MAX):
        content = contents.get(path)
        if content is None:
            content = _content(entry, min(budget, FILE_BYTES_MAX))
        budget -= len(content)
        name = os.fsencode(path)
        total.update(b"%d %d\0%s" % (len(name), len(content), name))
        total.update(content)
    return total.digest()


def listed(directory: str, entries_max: int) -> list[os.DirEntry[str]]:
    """Return at most `entries_max` entries of a directory, sorted by name. Raises `OSError`."""
    with os.scandir(directory) as entries:
        return sorted(islice(entries, entries_max), key=lambda entry: entry.name)


def _content(entry: os.DirEntry[str], bytes_max: int) -> bytes:
    """Return a file's content, or its size, modification time and inode when it is too large to read."""
    try:
        status = entry.stat()
        if status.st_size > bytes_max:
            return b"%d %d %d" % (status.st_size, status.st_mtime_ns, status.st_ino)
        return read_regular(entry.path, bytes_max)
    except (OSError, NotRegularError, TooLargeError):
        return b""  # unreadable, removed meanwhile, or not a regular file: only its name counts


def _below(directory: str, prefix: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every file below a directory in a stable order, without following links to directories."""
    try:
        entries = listed(directory, ENTRIES_MAX)
    except OSError:
        return
    for entry in entries:
        if entry.name in UNWATCHED:
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield prefix + entry.name, entry
        elif depth < DEPTH_MAX:
            yield from _below(entry.path, f"{prefix}{entry.name}/", depth + 1)


@functools.cache
def _version() -> str:
    """Return Toolcell's version and the interpreter's."""
    return f"{importlib.metadata.version('toolcell')} {sys.version}"
