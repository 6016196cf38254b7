"""Where a program may come from that the daemon starts outside of a cell, or with the user's secrets.

Never from where a tool or another user can write. `npm run`, `npx` and direnv put directories of a project first on the
PATH that the daemon may be started with.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from typing import Final

from toolcelld.files.paths import is_below

__all__ = ["fault_of", "project_directories", "usable_path"]

PROJECT_MARKS: Final = (".toolcell", ".atomic")
"""What a project has whose tools are run; below the home directory it is the user's own."""
LINKS: Final = os.path.join("node_modules", ".bin")
"""Where npm links the programs of a project's packages; those of packages for all are in `bin`."""


def project_directories(directory: str, home: str) -> tuple[str, ...]:
    """Return a session's directory and the git worktrees around it, but for one that contains the home directory."""
    found, above = [directory], directory
    while above != os.path.dirname(above):
        if not is_below(home, above) and os.path.lexists(os.path.join(above, ".git")):
            found.append(above)
        above = os.path.dirname(above)
    return tuple(found)


def fault_of(path: str, home: str, avoid: Collection[str] = ()) -> str:
    """Say why a program must not be taken from a path; empty if it may be.

    Args:
        path: The absolute path of a program or a directory.
        home: The user's home directory.
        avoid: Directories of projects.
    """
    if f"/{LINKS}/" in f"{path}/":
        return "it belongs to the packages of a project"
    above = path
    while above != (parent := os.path.dirname(above)):
        above = parent
        if above in avoid or (not is_below(home, above) and _has_tools(above)):
            return f"it lies in the project {above}, where tools can write"
        try:
            status = os.stat(above)
        except OSError as error:
            return f"{above}: {error.strerror}"
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"every user can write in {above}"
    return ""


def _has_tools(directory: str) -> bool:
    return any(os.path.isdir(os.path.join(directory, mark)) for mark in PROJECT_MARKS)


def usable_path(path: str, home: str, avoid: Collection[str] = ()) -> str:
    """Return the directories of a PATH from which programs may be taken, in their order; relative ones are none.

    Args:
        path: As in the variable PATH.
        home: As in `fault_of`.
        avoid: As in `fault_of`.
    """

    def is_usable(place: str) -> bool:
        inside = (os.path.join(each, "program") for each in dict.fromkeys((place, os.path.realpath(place))))
        return os.path.isabs(place) and not any(fault_of(each, home, avoid) for each in inside)

    return os.pathsep.join(filter(is_usable, path.split(os.pathsep)))
