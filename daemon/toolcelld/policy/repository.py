"""What in a git repository decides what git runs: found by reading its metadata, and no program is started.

`.git` itself is protected as a whole. Besides, git runs or reads what lies outside of it and is named in it: what a link
in it leads to, the `.git` of each submodule, and what its configuration names: hooks, included configuration, scripts of
filters, editors and aliases. The user's own configuration counts as well.
The metadata came with the repository, so it is opened without following links and read up to bounds, its content is
parsed by the inspector, and a line that is not understood names nothing.

A linked worktree (`git worktree add`) has its metadata outside of the project: its `.git` is a file that names a
directory of the repository. That file came with the project, so what it names is believed only where the repository
says the same of this worktree, in a place that the project's author cannot write; see `common_directory`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from toolcell._owners import walk
from toolcell._paths import is_below
from toolcelld.files.paths import Place, open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

T = TypeVar("T")

FILE_BYTES_MAX: Final = 2**18  # of a configuration
SYSTEM_CONFIG: Final = "/etc/gitconfig"
PATH_BYTES_MAX: Final = 4096 + 1  # PATH_MAX, and a newline
INDEX_BYTES_MAX: Final = 16 * 2**20  # an index of some 150,000 files
ENTRIES_MAX: Final = 512  # of .git and of its hooks
CONFIG_BYTES_MAX: Final = 2**19
"""Of all configurations that come with a project, its submodules' and included ones; they take a second to read."""
INCLUDES_MAX: Final = 64
"""Files of one configuration; git refuses includes that are nested more than ten deep."""
DEPTH_MAX: Final = 10
NAMED_MAX: Final = 1024
"""By all configurations that come with a project; each name costs some system calls."""
SUBMODULES_MAX: Final = 256
WORKTREES_MAX: Final = 1024
"""Of one repository; with more of them its directory is not opened."""


@dataclass(slots=True)
class Allowance:
    """What is still read of the configurations that come with a project, however many repositories are in it."""

    bytes_left: int = CONFIG_BYTES_MAX
    names_left: int = NAMED_MAX

    def take(self, path: str, size: int, names: int) -> None:
        """Count a file and the names in it. Raises `InspectionError` that names the file, if they are too many."""
        self.bytes_left -= size
        self.names_left -= names
        if self.bytes_left < 0 or self.names_left < 0:
            raise InspectionError(f"{path} and git's other configurations here are longer than is read")


def named_by(git: str, worktree: str, home: str, allowance: Allowance) -> Iterator[str]:
    """Yield the paths outside of a git directory that git runs or reads as configuration; they may not exist.

    Args:
        git: The path of the git directory.
        worktree: The directory in which git works with it.
        home: The user's home directory.
        allowance: Of the project; the user's own configuration does not count.

    Raises:
        InspectionError: A configuration cannot be read; the text names it.
    """
    common = _path_in(git, "commondir") or git  # a linked worktree has the configuration of its repository
    for directory in (git, os.path.join(git, "hooks"), os.path.join(git, "info")):
        yield from _links(directory)
    for path in (os.path.join(common, "config"), os.path.join(git, "config.worktree")):
        yield from _named_with_includes(path, worktree, home, allowance)
    for path in (
        os.path.join(home, ".gitconfig"), os.path.join(home, ".config", "git", "config"), SYSTEM_CONFIG
    ):  # fmt: skip
        yield from _named_with_includes(path, worktree, home, Allowance())


def _named_with_includes(path: str, worktree: str, home: str, allowance: Allowance) -> Iterator[str]:
    """Yield what a configuration file and all that it includes name. The file may be behind a link of the user's."""
    waiting, seen = [(path, 0)], {path}
    while waiting:
        file, depth = waiting.pop()
        raw = _configuration(file)
        allowance.take(file, len(raw), 0)
        found = [each for each in _inspected(file, answers.git_config, raw) if each[0] != "submodule"]
        allowance.take(file, 0, len(found))
        for naming, name in found:
            named = _resolved(name, os.path.dirname(file) if naming == "include" else worktree, home)
            # A word without a slash is a program on PATH, or an argument that may be a file.
            if naming != "command" or "/" in name or os.path.lexists(named):
                yield named
            if naming == "include" and named not in seen and depth < DEPTH_MAX and len(seen) < INCLUDES_MAX:
                seen.add(named)
                waiting.append((named, depth + 1))


def _configuration(path: str) -> bytes:
    """Return the content of a configuration; nothing where there is none. Raises `InspectionError` for one that is too long."""
    try:
        return read_regular(path, FILE_BYTES_MAX)
    except TooLargeError as error:
        raise InspectionError(f"{path} is longer than is read") from error
    except (OSError, ValueError, NotRegularError):
        return b""


def _resolved(name: str, directory: str, home: str) -> str:
    """Return the absolute path that a value names."""
    if name == "~" or name.startswith("~/"):
        name = home + name[1:]
    return os.path.normpath(os.path.join(directory, name))


def _inspected(path: str, parse: Callable[[bytes], tuple[T, ...]], raw: bytes) -> tuple[T, ...]:
    """Return what the inspector finds in a file. Raises `InspectionError` that names the file."""
    try:
        return parse(raw) if raw else ()
    except InspectionError as error:
        raise InspectionError(f"{path} {error}") from error


def _links(directory: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
            if entry.is_symlink():
                yield entry.path


def gitdir_named(file: str) -> str:
    """Return the git directory that a `.git` file names; "" if it names none. Raises `InspectionError`."""
    named = _inspected(file, answers.git_file, _read(file, FILE_BYTES_MAX))
    return os.path.normpath(os.path.join(os.path.dirname(file), named[0])) if named else ""


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

    A name that only looks like one may be among them; the caller looks whether it has a `.git`. Raises `InspectionError`.
    """
    index, modules = os.path.join(git, "index"), os.path.join(os.path.dirname(git), ".gitmodules")
    found = _inspected(modules, answers.git_config, _read(modules, FILE_BYTES_MAX))
    names = dict.fromkeys(name for naming, name in found if naming == "submodule")
    names |= dict.fromkeys(_inspected(index, answers.git_index, _read(index, INDEX_BYTES_MAX)))
    return [name for name in names if _is_plain(name)][:SUBMODULES_MAX]


def _is_plain(name: str) -> bool:
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _read(path: str, bytes_max: int) -> bytes:
    """Return the content of a regular file; nothing where there is none. No component may be a link."""
    try:
        return read_regular(path, bytes_max, opened=open_plain)
    except (OSError, ValueError, NotRegularError, TooLargeError):
        return b""
