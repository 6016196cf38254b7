"""What in a git repository decides what git runs: found by reading its metadata, and no program is started.

`.git` itself is protected as a whole. Besides, git runs or reads what lies outside of it and is named in it: hooks by
`core.hooksPath`, configuration by `include.path`, whatever a link in it leads to, and the `.git` of each submodule.
The metadata came with the repository, so it is read without following links, up to bounds, and a line that is not
understood names nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Final

from toolcelld.files.paths import open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular

__all__ = ["gitdir_named", "named_by", "submodules"]

FILE_BYTES_MAX: Final = 2**20  # of a configuration
INDEX_BYTES_MAX: Final = 64 * 2**20  # an index of half a million files
ENTRIES_MAX: Final = 512  # of .git and of its hooks
SUBMODULES_MAX: Final = 256
GITLINK: Final = (0o160000).to_bytes(4, "big")
HASH_BYTES: Final = (20, 32)  # SHA-1 and SHA-256
_PATHS: Final = re.compile(rb'^\s*(?:hookspath|path)\s*=\s*"?([^"\n]*?)"?\s*$', re.IGNORECASE | re.MULTILINE)
_GITDIR: Final = re.compile(rb"^gitdir:\s*([^\n]+?)\s*$", re.MULTILINE)


def named_by(git: str) -> Iterator[str]:
    """Yield the paths outside of a git directory that git runs or reads as configuration; they may not exist.

    Args:
        git: The path of the git directory.
    """
    worktree = os.path.dirname(git)
    for directory in (git, os.path.join(git, "hooks"), os.path.join(git, "info")):
        yield from _links(directory)
    config = _read(os.path.join(git, "config"), FILE_BYTES_MAX)
    for found in _PATHS.findall(config)[:ENTRIES_MAX]:
        name = os.fsdecode(found)
        if name and "\0" not in name:
            # core.hooksPath is relative to the worktree, include.path to the file that names it.
            yield os.path.normpath(os.path.join(worktree, name))
            yield os.path.normpath(os.path.join(git, name))


def _links(directory: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
            if entry.is_symlink():
                yield entry.path


def gitdir_named(file: str) -> str:
    """Return the git directory that a `.git` file names; "" if it names none."""
    found = _GITDIR.search(_read(file, FILE_BYTES_MAX))
    if found is None or b"\0" in found[1]:
        return ""
    return os.path.normpath(os.path.join(os.path.dirname(file), os.fsdecode(found[1])))


def submodules(git: str) -> list[str]:
    """Return the paths of a repository's submodules, relative to its worktree, as its index and `.gitmodules` name them.

    A name that only looks like one may be among them; the caller looks whether it has a `.git`.
    """
    names: dict[str, None] = {}
    for found in _PATHS.findall(_read(os.path.join(os.path.dirname(git), ".gitmodules"), FILE_BYTES_MAX)):
        names[os.fsdecode(found)] = None
    index = _read(os.path.join(git, "index"), INDEX_BYTES_MAX)
    position = index.find(GITLINK)
    while position >= 0 and len(names) < SUBMODULES_MAX:
        for hash_bytes in HASH_BYTES:
            start = position + 16 + hash_bytes + 2  # the mode, the owner, the group and the size; the flags
            end = index.find(b"\0", start, start + 4096)
            if end > start:
                names[os.fsdecode(index[start:end])] = None
        position = index.find(GITLINK, position + 1)
    return [name for name in names if _is_plain(name)][:SUBMODULES_MAX]


def _is_plain(name: str) -> bool:
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _read(path: str, bytes_max: int) -> bytes:
    """Return the content of a regular file at a path without links; nothing where there is none."""
    try:
        return read_regular(path, bytes_max, opened=open_plain)
    except (OSError, NotRegularError, TooLargeError):
        return b""
