"""What in a git repository decides what git runs: found by reading its metadata, and no program is started.

`.git` itself is protected as a whole. Besides, git runs or reads what lies outside of it and is named in it: what a link
in it leads to, the `.git` of each submodule, and what its configuration names (`git_config`): hooks, included
configuration, scripts of filters, editors and aliases. The user's own configuration counts as well.
The metadata came with the repository, so it is read without following links, up to bounds, and a line that is not
understood names nothing.

A linked worktree (`git worktree add`) has its metadata outside of the project: its `.git` is a file that names a
directory of the repository. That file came with the project, so what it names is believed only where the repository
says the same of this worktree, in a place that the project's author cannot write; see `common_directory`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import Final

from toolcelld.files import git_config
from toolcelld.files.owners import walk
from toolcelld.files.paths import Place, is_below, open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular

__all__ = ["common_directory", "gitdir_named", "named_by", "submodules"]

FILE_BYTES_MAX: Final = 2**18  # of a configuration
SYSTEM_CONFIG: Final = "/etc/gitconfig"
PATH_BYTES_MAX: Final = 4096 + 1  # PATH_MAX, and a newline
INDEX_BYTES_MAX: Final = 16 * 2**20  # an index of some 150,000 files
GITLINKS_MAX: Final = 10_000
"""Places of an index that look like a submodule; names and hashes can have these bytes, too."""
ENTRIES_MAX: Final = 512  # of .git and of its hooks
SETTINGS_MAX: Final = 10_000  # of one configuration
GITDIR_LINES_MAX: Final = 16  # git writes one
SUBMODULES_MAX: Final = 256
WORKTREES_MAX: Final = 1024
"""Of one repository; with more of them its directory is not opened."""
GITLINK: Final = (0o160000).to_bytes(4, "big")
HASH_BYTES: Final = (20, 32)  # SHA-1 and SHA-256


def named_by(git: str, worktree: str, home: str) -> Iterator[str]:
    """Yield the paths outside of a git directory that git runs or reads as configuration; they may not exist.

    Args:
        git: The path of the git directory.
        worktree: The directory in which git works with it.
        home: The user's home directory.
    """
    common = _path_in(git, "commondir") or git  # a linked worktree has the configuration of its repository
    for directory in (git, os.path.join(git, "hooks"), os.path.join(git, "info")):
        yield from _links(directory)
    for path in (
        os.path.join(common, "config"),
        os.path.join(git, "config.worktree"),
        os.path.join(home, ".gitconfig"),
        os.path.join(home, ".config", "git", "config"),
        SYSTEM_CONFIG,
    ):
        entries = git_config.read_with_includes(path, _read_config, home)
        for file, entry in itertools.islice(entries, SETTINGS_MAX):
            yield from git_config.named_files(file, entry, worktree, home)


def _read_config(path: str) -> bytes:
    """Return the content of a configuration file, which may be behind a link of the user's."""
    return _read(path, FILE_BYTES_MAX, opened=os.open)


def _links(directory: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
            if entry.is_symlink():
                yield entry.path


def gitdir_named(file: str) -> str:
    """Return the git directory that a `.git` file names; "" if it names none."""
    for line in _read(file, FILE_BYTES_MAX).splitlines()[:GITDIR_LINES_MAX]:
        prefix, colon, named = line.partition(b":")
        if prefix == b"gitdir" and colon and (name := named.strip()) and b"\0" not in name:
            return os.path.normpath(os.path.join(os.path.dirname(file), os.fsdecode(name)))
    return ""


def common_directory(worktree: str, home: str, safe: Collection[str] = ()) -> tuple[Place, ...]:
    """Return the git directory of the repository of a linked worktree, as one place; none where it must not be opened.

    The `.git` file could name any directory, so all of this has to hold:

    - It names COMMON/worktrees/NAME, outside of the worktree, and `commondir` there leads to COMMON.
    - `gitdir` there names this `.git`: git writes it when the user adds the worktree.
    - No component of that path is a link, and no other user can write in one of these directories. A project's author
      can write in the project alone, and what lies in the project may be read anyway.
    - COMMON is a git directory, and neither contains the home directory nor any worktree, whose files would be opened.

    Args:
        worktree: The directory with the `.git`; absolute, without links, and of this user or root.
        home: The user's home directory.
        safe: As for `walk`.
    """
    file = os.path.join(worktree, ".git")
    git = gitdir_named(file)
    worktrees, common = os.path.dirname(git), os.path.dirname(os.path.dirname(git))
    if os.path.basename(worktrees) != "worktrees" or is_below(git, worktree) or is_below(home, common):
        return ()
    try:
        steps = walk(git, safe)
        status = os.lstat(common)
        names = os.listdir(worktrees)
    except (OSError, ValueError):
        return ()
    if any(step.fault_within if is_below(step.path, common) else step.fault_above for step in steps):
        return ()
    if _path_in(git, "commondir") != common or _path_in(git, "gitdir") != file or not _is_repository(common):
        return ()
    others = (_path_in(os.path.join(worktrees, name), "gitdir") for name in names[:WORKTREES_MAX])
    if len(names) > WORKTREES_MAX or any(is_below(other, common) for other in others):
        return ()
    return (Place.of(common, status),)


def _path_in(git: str, name: str) -> str:
    """Return the path that a file of a git directory names; "" where it names none."""
    line = os.fsdecode(_read(os.path.join(git, name), PATH_BYTES_MAX)).removesuffix("\n")
    return "" if not line or "\0" in line else os.path.normpath(os.path.join(git, line))


def _is_repository(directory: str) -> bool:
    """Whether a directory has what git wants of a git directory; a link is none of it."""
    with contextlib.suppress(OSError):
        head, *others = (
            os.lstat(os.path.join(directory, name)).st_mode for name in ("HEAD", "objects", "refs")
        )
        return stat.S_ISREG(head) and all(map(stat.S_ISDIR, others))
    return False


def submodules(git: str) -> list[str]:
    """Return the paths of a repository's submodules, relative to its worktree, as its index and `.gitmodules` name them.

    A name that only looks like one may be among them; the caller looks whether it has a `.git`.
    """
    names: dict[str, None] = {}
    modules = os.fsdecode(_read(os.path.join(os.path.dirname(git), ".gitmodules"), FILE_BYTES_MAX))
    for entry in itertools.islice(git_config.parse(modules), SETTINGS_MAX):
        if entry.name == "submodule.path":
            names[entry.value] = None
    index = _read(os.path.join(git, "index"), INDEX_BYTES_MAX)
    position = index.find(GITLINK)
    for _ in range(GITLINKS_MAX):
        if position < 0 or len(names) >= SUBMODULES_MAX:
            break
        for hash_bytes in HASH_BYTES:
            start = position + 16 + hash_bytes + 2  # the mode, the owner, the group and the size; the flags
            end = index.find(b"\0", start, start + 4096)
            if end > start:
                names[os.fsdecode(index[start:end])] = None
        position = index.find(GITLINK, position + 1)
    return [name for name in names if _is_plain(name)][:SUBMODULES_MAX]


def _is_plain(name: str) -> bool:
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _read(path: str, bytes_max: int, *, opened: Callable[[str, int], int] = open_plain) -> bytes:
    """Return the content of a regular file; nothing where there is none. By default no component may be a link."""
    try:
        return read_regular(path, bytes_max, opened=opened)
    except (OSError, ValueError, NotRegularError, TooLargeError):
        return b""
