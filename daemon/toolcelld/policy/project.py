"""The project that a session works on: which directory its tools may write, and what in it stays as it is.

A project is found once, when a session is opened, and again when one of its places was exchanged. It is found from the
root directory downwards, by descriptor and without following links, because a repository comes with links of its
author's choice. A session's directory is widened to the git worktree around it only through directories that belong to
this user or to root and that no other user can write: a `.git` that another user made in a shared directory above
widens nothing. A fault of that kind does not refuse the directory; it ends the widening, and `Project.fault` says it.

In the project three kinds of places are told apart:

    held        directories that stay writable, and must not be exchanged: the root, and those above a protected place
    protected   what programs outside of cells run or read as configuration: read-only
    looked      directories in which the names of protected places are looked for after a call, as a tool may make one

Of a linked git worktree the repository's own directory is found too, so that it can be read (`repository`).
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from toolcell._owners import user_name, walk
from toolcell._paths import is_below
from toolcelld.config.protected import ALWAYS
from toolcelld.files.paths import Place
from toolcelld.inspector.process import InspectionError
from toolcelld.policy.repository import Allowance, common_directory, gitdir_named, named_by, submodules

ENTRIES_MAX: Final = 65536
"""Listed of one directory for patterns, in some 30 ms; the names without `*` are looked for one by one beyond it."""
LINKS_MAX: Final = 8
"""Links that lead to links, of one protected name."""
MAGIC: Final = "*?["
PLACES_MAX: Final = 1024
"""Each costs a mount of some 10 µs in every cell."""


class Looked(NamedTuple):
    """A directory in which names are looked for, and those that were there."""

    place: Place
    names: tuple[str, ...]  # names and patterns, without a slash
    present: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Project:
    """What a session works on, as it was found."""

    directory: str  # what its tools may write below: its root
    worktree: str = ""  # the repository that it belongs to, else the session's directory
    held: tuple[Place, ...] = ()  # the root first
    protected: tuple[Place, ...] = ()
    git: tuple[str, ...] = ()  # those of the protected places that are git's metadata
    looked: tuple[Looked, ...] = ()
    repository: tuple[Place, ...] = ()  # the git directory of a linked worktree's repository
    fault: str = ""  # why it cannot be trusted: which other users can write in it; empty where none can
    unread: str = ""  # the same: which file of git's cannot be read, so that it is not known what git runs
    sources: tuple[
        str, ...
    ] = ()  # the user's directories of tools that it is, or is in: only their tools write in it
    names: tuple[str, ...] = ()
    """Names and patterns of what is protected in it; what begins with "/" begins at its directory."""
    shared: str = ""  # the directory that `fault` is about; it can be accepted

    @property
    def trustworthy(self) -> bool:
        """Whether its files are what its user was shown, and it is known what they make git run."""
        return not (self.fault or self.unread)

    @property
    def places(self) -> tuple[Place, ...]:
        """Everything that cells hold: what has been exchanged needs another cell."""
        return (*self.held, *self.protected, *self.repository)


def find_project(
    directory: str,
    *,
    home: str,
    names: Sequence[str] = (),
    tools: Iterable[str] = (),
    sources: Iterable[str] = (),
    safe: Collection[str] = (),
    project: str = "",
) -> Project:
    """Find the project of a session. Blocks on the file system.

    Args:
        directory: The session's directory: an absolute path without links.
        home: The user's home directory. A worktree that contains it holds dotfiles and is not a project.
        names: The names and patterns to protect, beside those that always are.
        tools: Absolute paths of directories of tools and of interpreters' environments, wherever they are; those in
            the project are protected.
        sources: Those directories of tools that the user's configuration names, wherever they are.
        safe: Directories that are accepted although other users can write in them.
        project: The directory above that has the tools; the root where there is no repository. "", the default, for
            the session's directory.

    Raises:
        OSError: The directory does not exist, or a component of its path is a link.
    """
    chain = walk(directory, safe)
    root = worktree = project or directory
    repository: tuple[Place, ...] = ()
    for step in reversed(chain):
        if step.fault_within:
            break
        if (owner := _owner(os.path.join(step.path, ".git"))) is not None:
            ours = owner in (0, os.geteuid()) or step.path in safe
            worktree = step.path
            if ours and not is_below(home, step.path):
                root = step.path
                with contextlib.suppress(InspectionError):  # then it is a fault, below
                    repository = common_directory(root, home, safe)
            break
    faults = (
        (step.path, step.fault_within if is_below(step.path, root) else step.fault_above) for step in chain
    )
    finder = _PlaceFinder(root, names, home)
    finder.hold(root)
    for step in chain:
        if is_below(step.path, root):
            finder.hold(step.path)
            finder.look(step.path, (*ALWAYS, *names))
    for place in tools:
        finder.protect_tools(place)
    of_places = (project or directory, _fault_of_places(project or directory, safe))
    shared, fault = next((each for each in (*faults, of_places) if each[1]), ("", ""))
    found = finder.project(worktree, repository, fault)
    around = dict.fromkeys(place for place in map(os.path.realpath, sources) if is_below(root, place))
    return replace(found, sources=tuple(around), names=_names(found, (*ALWAYS, *names)), shared=shared)


def _names(project: Project, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are protected anywhere, and those that are in one place: as a directory of tools, or git's."""
    anywhere = set(names)
    wanted = [
        (looked.place.path, name)
        for looked in project.looked
        for name in looked.names
        if name not in anywhere and is_below(looked.place.path, project.directory)
    ]
    wanted += [
        (os.path.dirname(place.path), glob.escape(os.path.basename(place.path)))
        for place in project.protected
        if not any(fnmatch.fnmatchcase(os.path.basename(place.path), name) for name in names)
    ]
    start = len(project.directory.rstrip("/"))
    anchored = (f"{glob.escape(directory[start:])}/{name}" for directory, name in wanted)
    return tuple(dict.fromkeys((*names, *anchored)))


def _owner(path: str) -> int | None:
    status = _status(path)
    return None if status is None else status.st_uid


def _fault_of_places(directory: str, safe: Collection[str]) -> str:
    """Say which of the places that hold tools belongs to another user."""
    if directory in safe:
        return ""
    for name in ALWAYS:
        path = directory
        for part in name.split("/"):
            owner = _owner(path := os.path.join(path, part))
            if owner not in (None, 0, os.geteuid()):
                return f"{path} belongs to the user {user_name(owner or 0)}"
    return ""


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


# What stays as it is


class _PlaceFinder:
    """Collects the places of a project."""

    def __init__(self, root: str, names: Sequence[str], home: str) -> None:
        self._root = root
        self._home = home
        self._names = names
        self._held: dict[str, Place] = {}
        self._protected: dict[str, Place] = {}
        self._git: dict[str, None] = {}
        self._looked: dict[str, Looked] = {}
        self._unread = ""
        self._allowance = Allowance()

    def project(self, worktree: str, repository: tuple[Place, ...], fault: str) -> Project:
        """Return what was collected."""
        for place in repository:  # nothing is looked for in it: its change time shows that it is gone
            self._looked[place.path] = Looked(place, ())
        return Project(
            self._root,
            worktree,
            tuple(self._held.values()),
            tuple(self._protected.values()),
            tuple(self._git),
            tuple(self._looked.values()),
            repository,
            fault,
            self._unread,
        )

    def hold(self, path: str) -> bool:
        """Hold a directory of the project, and those above it; False if one of them is a link or missing."""
        if path in self._held:
            return True
        if not is_below(path, self._root) or (path != self._root and not self.hold(os.path.dirname(path))):
            return False
        status = _status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return False
        if len(self._held) < PLACES_MAX and not self._is_protected(path):
            self._held[path] = Place.of(path, status)
        return True

    def _is_protected(self, path: str) -> bool:
        return any(is_below(path, place) for place in self._protected)

    def look(self, directory: str, names: Sequence[str]) -> None:
        """Protect what of these names is in a directory, and have the others looked for."""
        status = _status(directory)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        here = tuple(name for name in names if "/" not in name)
        if (before := self._looked.get(directory)) is not None:
            if set(names) <= set(before.names):
                return
            here = tuple(dict.fromkeys((*before.names, *here)))
        present = names_in(directory, here)
        self._looked[directory] = Looked(Place.of(directory, status), here, present)
        for name in present[:PLACES_MAX]:  # of more none would be held
            self.protect(os.path.join(directory, name))
        further: dict[str, list[str]] = {}
        for name in names:
            first, _, rest = name.partition("/")
            if rest:
                further.setdefault(first, []).append(rest)
        for first, rest_names in further.items():
            below = os.path.join(directory, first)
            if self.hold(below):
                self.look(below, rest_names)
            elif os.path.islink(below):
                self.protect(below)

    def protect(self, path: str, links: int = 0) -> None:
        """Protect what is at a path: a link itself, and what it leads to where that is in the project."""
        above = os.path.realpath(os.path.dirname(path))
        path = os.path.join(above, os.path.basename(path))
        status = _status(path)
        if path == self._root or not is_below(path, self._root):
            return
        if status is None:
            self._look_for_missing(path)
            return
        if not self.hold(above):
            return
        if len(self._protected) < PLACES_MAX and not self._is_protected(path):
            self._protected[path] = Place.of(path, status)
            self._held.pop(path, None)
        if stat.S_ISLNK(status.st_mode) and links < LINKS_MAX:
            self.protect(os.path.normpath(os.path.join(above, os.readlink(path))), links + 1)
        if os.path.basename(path) == ".git" and path not in self._git:
            self._git[path] = None
            try:
                self._protect_repository(path)
            except InspectionError as error:  # what it makes git run is not known
                self._unread = self._unread or str(error)

    def _look_for_missing(self, path: str) -> None:
        """Have the first component that is missing of a path looked for: a link or a setting names it already."""
        above = os.path.dirname(path)
        while not os.path.lexists(above) and is_below(above, self._root):
            path, above = above, os.path.dirname(above)
        if not (is_below(above, self._root) and self.hold(above)):
            return
        name = os.path.basename(path)
        if (before := self._looked.get(above)) is None:
            self.look(above, (name,))
        elif name not in before.names:  # nothing of it is there that would have to be protected
            self._looked[above] = before._replace(names=(*before.names, name))

    def _protect_repository(self, path: str) -> None:
        """Protect what git runs or reads for a repository, beside its `.git`."""
        git = gitdir_named(path) if os.path.isfile(path) else os.path.realpath(path)
        if not git:
            return
        self.protect(git)
        for named in named_by(git, os.path.dirname(path), self._home, self._allowance):
            self.protect(named)
        if not is_below(git, path):  # a link or a file: what it names belongs to this worktree
            return
        for name in submodules(git):
            below = os.path.join(os.path.dirname(path), name)
            if os.path.lexists(os.path.join(below, ".git")) and self.hold(below):
                self.look(below, (".git",))

    def protect_tools(self, path: str) -> None:
        """Protect a directory that is not named by the project, and is in it or is a link to a place in it."""
        for place in dict.fromkeys((path, os.path.realpath(path))):
            above = os.path.dirname(place)
            if is_below(above, self._root) and self.hold(above):
                self.look(above, (os.path.basename(place),))


def names_in(directory: str | int, names: Sequence[str]) -> tuple[str, ...]:
    """Return the entries of a directory that have one of these names, in their order; patterns beyond a bound are missed.

    Args:
        directory: A path, or a descriptor that was opened for reading.
        names: Names, and patterns with `*`, `?` or `[`.
    """
    entries: list[str] = []
    complete = True
    if not any(letter in name for name in names for letter in MAGIC):  # the directory may be large
        return tuple(name for name in dict.fromkeys(names) if _is_in(directory, name))
    try:
        with os.scandir(directory) as listing:
            for entry in listing:
                if len(entries) >= ENTRIES_MAX:
                    complete = False
                    break
                entries.append(entry.name)
    except OSError:
        return ()
    found: dict[str, None] = {}
    known = set(entries)
    for name in names:
        if any(letter in name for letter in MAGIC):
            found.update(dict.fromkeys(sorted(fnmatch.filter(entries, name))))
        elif name in known or (not complete and _is_in(directory, name)):
            found[name] = None
    return tuple(found)


def _is_in(directory: str | int, name: str) -> bool:
    try:
        if isinstance(directory, int):
            os.lstat(name, dir_fd=directory)
        else:
            os.lstat(os.path.join(directory, name))
    except OSError:
        return False
    return True
