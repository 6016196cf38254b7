"""The digest of a tool directory; it is the key of cached descriptions and of cells.

It covers every regular file below the directory, because a tool may import helper modules: a digest of the tool file
alone would reuse a worker that has loaded an old helper. It also covers the interpreter and Toolcell's version,
because both affect how a file is described.

Beyond a budget of bytes, size and times stand for the content, so that a large directory such as `node_modules` does
not delay the opening of a session. What the digest does not cover at all is said beside it (`Digest.uncovered`), because
a trust that is pinned to a digest must not hold for it. `__pycache__` is neither covered nor importable: the worker's
loader passes it over.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from toolcell._version import VERSION
from toolcelld.files.paths import held, open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular

ENTRIES_MAX = 20_000  # below one directory: about 0.3 s for the stats alone
BYTES_MAX = 32 * 2**20  # read for one digest: about 50 ms
FILE_BYTES_MAX = 2**20  # larger files are data
DEPTH_MAX = 16
CODE_BYTES: Final = 20
COMPILED: Final = "__pycache__"
UNWATCHED = frozenset({COMPILED, ".git"})  # written by running tools and by git


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a directory, and why it does not cover all of it."""

    value: bytes
    # The first thing below that may change without another digest; empty where there is none
    uncovered: str = ""
    # Of the files alone, so that it is the same on each machine
    code: bytes = b""


def code_of(directory: Digest, project_file: bytes) -> str:
    """Return the digest of a project's tools in a directory, by which another machine trusts them.

    Args:
        directory: That of the directory.
        project_file: The project's own configuration, which says what they ask for; empty if it has none.
    """
    return hashlib.blake2b(directory.code + project_file, digest_size=CODE_BYTES).hexdigest()


def digest_below(
    directory: str, python: str | None, contents: Mapping[str, bytes], *, plain: bool = False
) -> Digest:
    """Return the digest of the files below a directory, its interpreter and Toolcell's version.

    Args:
        directory: An absolute path; without links where `plain` is set.
        python: The path of the interpreter; None for Toolcell's own.
        contents: The files that were read already, by path relative to the directory.
        plain: Whether what is below is another person's, so that no link is followed to read a file.
    """
    walk = _Walk(plain)
    total = hashlib.blake2b(digest_size=20)
    budget = BYTES_MAX
    entries = walk.below(directory, "", 0)
    for path, entry in islice(entries, ENTRIES_MAX):
        content = contents.get(path)
        if content is None:
            content = walk.content(os.path.join(directory, path), entry, min(budget, FILE_BYTES_MAX))
        budget -= len(content)
        name = os.fsencode(path)
        total.update(b"%d %d\0%s" % (len(name), len(content), name))
        total.update(content)
    if next(entries, None) is not None:
        walk.misses(f"there are more than {ENTRIES_MAX} files")
    code = total.digest()
    interpreter = python or sys.executable
    total.update(os.fsencode(f"{_version()}\0{interpreter}\0{python and os.path.realpath(python)}"))
    return Digest(total.digest(), walk.uncovered, code)


def listed(directory: str, entries_max: int, *, plain: bool = False) -> list[os.DirEntry[str]]:
    """Return at most `entries_max` entries of a directory, sorted by name. Raises `OSError`.

    With `plain` the path must not have a link, and the paths of the entries are only their names.
    """
    if not plain:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, entries_max), key=lambda entry: entry.name)
    with held(open_plain(directory, os.O_RDONLY | os.O_DIRECTORY)) as opened, os.scandir(opened) as entries:
        found = sorted(islice(entries, entries_max), key=lambda entry: entry.name)
        for entry in found:
            entry.is_symlink()  # ask now: on some file systems it needs the descriptor
        return found


class _Walk:
    """One walk below a directory, and the first thing that it missed."""

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self.uncovered = ""

    def misses(self, what: str) -> None:
        """Note what the digest does not cover."""
        self.uncovered = self.uncovered or what

    def below(self, directory: str, prefix: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield every file below a directory in a stable order, without following links to directories."""
        try:
            entries = listed(directory, ENTRIES_MAX + 1, plain=self._plain)
        except OSError as error:
            self.misses(f"{directory}: {error.strerror}")
            return
        if len(entries) > ENTRIES_MAX:
            self.misses(f"{directory} has more than {ENTRIES_MAX} entries")
        for entry in entries[:ENTRIES_MAX]:
            path = os.path.join(directory, entry.name)
            if entry.name in UNWATCHED:
                if entry.name != COMPILED:
                    self.misses(f"{path} is not looked at")
            elif not entry.is_dir(follow_symlinks=False):
                yield prefix + entry.name, entry
            elif depth < DEPTH_MAX:
                yield from self.below(path, f"{prefix}{entry.name}/", depth + 1)
            else:
                self.misses(f"{path} is more than {DEPTH_MAX} directories deep")

    def content(self, path: str, entry: os.DirEntry[str], bytes_max: int) -> bytes:
        """Return a file's content; its size, times and inode where it is too large to read or another person's link."""
        is_link = entry.is_symlink()
        if is_link and self._plain:
            self.misses(f"{path} is a link")
        try:
            status = os.stat(path)
            if status.st_size > bytes_max or (is_link and self._plain):
                times = (status.st_mtime_ns, status.st_ctime_ns)
                return b"%d %d %d %d" % (status.st_size, *times, status.st_ino)
            return read_regular(path, bytes_max, opened=open_plain if self._plain else os.open)
        except (OSError, NotRegularError, TooLargeError):
            self.misses(f"{path} cannot be read")
            return b""  # unreadable, removed meanwhile, or not a regular file: only its name counts


@functools.cache
def _version() -> str:
    """Return Toolcell's version and the interpreter's."""
    return f"{VERSION} {sys.version}"
