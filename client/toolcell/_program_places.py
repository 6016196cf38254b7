"""Whether a program may be run that lies at some place: not where tools or another user can have put it.

`npm run`, `npx` and direnv put directories of a project first on PATH, and whatever a tool writes there would be run outside
of its cell. The daemon and the command follow the same rule.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from typing import Final

from toolcell import _owners
from toolcell._paths import is_below

LINKS: Final = os.path.join("node_modules", ".bin")
"""Where npm links the programs of a project's packages; those of packages for all are in `bin`."""
MARKS: Final = (".toolcell",)
"""Directories that make a project of the directory that they are in, besides `.git`."""
HOPS_MAX: Final = 40
"""Links from a name on PATH to its program, as many as the kernel follows."""


def is_executable(path: str) -> bool:
    """Whether a file can be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def fault_of(path: str, home: str, avoid: Collection[str] = (), marks: Collection[str] = MARKS) -> str:
    """Say why a program must not be taken from a path; empty if it may be.

    Args:
        path: The absolute path of a program or a directory. What its links lead to is not looked at; see `hops`.
        home: The user's home directory.
        avoid: Directories of projects, and others that tools may write to.
        marks: Directories that make a project of the directory that they are in.
    """
    if f"/{LINKS}/" in f"{path}/":
        return "it belongs to the packages of a project"
    directory = os.path.dirname(path)
    above = path
    while above != (parent := os.path.dirname(above)):
        above = parent
        if above in avoid or (not is_below(home, above) and _is_project(above, path, home, marks)):
            return f"it lies in the project {above}, where tools can write"
    try:
        faults = [step.fault_above for step in _owners.walk(os.path.realpath(directory))]
        owner = os.stat(path).st_uid if os.path.exists(path) else 0
    except OSError as error:
        return f"{directory}: {error.strerror}"
    if owner not in (0, os.geteuid()) and owner != _owners.unmapped():
        faults.append(f"it belongs to the user {_owners.user_name(owner)}")
    return next(filter(None, faults), "")


def usable_path(
    places: Collection[str], home: str, avoid: Collection[str] = (), marks: Collection[str] = MARKS
) -> str:
    """Return the directories from which programs may be taken, in their order, as in the variable PATH.

    Args:
        places: Absolute paths of directories.
        home: As in `fault_of`.
        avoid: As in `fault_of`.
        marks: As in `fault_of`.
    """

    def is_usable(place: str) -> bool:
        inside = (os.path.join(each, "program") for each in dict.fromkeys((place, os.path.realpath(place))))
        return not any(fault_of(each, home, avoid, marks) for each in inside)

    return os.pathsep.join(filter(is_usable, places))


def hops(place: str) -> Iterator[str]:
    """Yield the paths that lead from a name to its file, without the links of directories."""
    if os.path.realpath(os.path.dirname(place)) != os.path.dirname(place):
        yield place
    for _ in range(HOPS_MAX):
        place = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        yield place
        if not os.path.islink(place):
            return
        place = os.path.join(os.path.dirname(place), os.readlink(place))


def _is_project(directory: str, path: str, home: str, marks: Collection[str]) -> bool:
    """Whether sessions may work in a directory.

    Not where Toolcell's own environment is, which runs outside of cells anyway, nor in the worktree of a version manager:
    `~/.nvm` and `~/.asdf` are clones.
    """
    if any(os.path.isdir(os.path.join(directory, mark)) for mark in marks):
        return True
    if not os.path.lexists(os.path.join(directory, ".git")) or is_below(path, sys.prefix):
        return False
    return not (is_below(directory, home) and os.path.relpath(directory, home).startswith("."))
