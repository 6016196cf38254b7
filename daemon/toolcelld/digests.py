"""One digest of everything below a directory of tools; it keys descriptions and cells.

It covers every regular file, because a tool may import its neighbours: watching only the tool's own file
would serve a changed helper from a worker that loaded the old one. The interpreter and our version are
covered as well, as another of either may describe the same file differently.

Beyond a budget, contents are replaced by size and time of change: somebody's node_modules must not make
the opening of a session slow.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice

from toolcelld.files import NotRegularError, TooLargeError, read_regular

__all__ = ["digest_below", "listed"]

ENTRIES_MAX = 20_000  # below one directory: about 0.3 s for the stats alone
BYTES_MAX = 32 * 2**20  # read for one digest: about 50 ms
FILE_BYTES_MAX = 2**20  # larger ones are data
DEPTH_MAX = 16
UNWATCHED = frozenset({"__pycache__", ".git"})  # written by running the tools, and by asking about them


def digest_below(directory: str, python: str | None, contents: Mapping[str, bytes]) -> bytes:
    """Of the files below a directory, its interpreter and us; `contents` are those that were read already."""
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
    """The entries of a directory, sorted by name. Raises `OSError`."""
    with os.scandir(directory) as entries:
        return sorted(islice(entries, entries_max), key=lambda entry: entry.name)


def _content(entry: os.DirEntry[str], bytes_max: int) -> bytes:
    """What stands for a file in the digest."""
    try:
        status = entry.stat()
        if status.st_size > bytes_max:
            return b"%d %d %d" % (status.st_size, status.st_mtime_ns, status.st_ino)
        return read_regular(entry.path, bytes_max)
    except (OSError, NotRegularError, TooLargeError):
        return b""  # unreadable, gone, or not a file: its name stands for it


def _below(directory: str, prefix: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file below a directory in an order that is always the same, links to directories not followed."""
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
    """Ours and the interpreter's: another of either may describe the same file differently."""
    return f"{importlib.metadata.version('toolcell')} {sys.version}"
