"""Finds the programs that the daemon starts outside of a cell, or with the user's secrets: engines, uv, commands of secrets.

A program never comes from where a tool or another user can write. `npm run`, `npx` and direnv put directories of a project
first on the PATH that the daemon may be started with, and any worktree can be one in which a session works.

Where a program is, and which file it is, is fixed when the daemon starts: one that appears earlier on PATH later is not
taken. A package manager replaces files, so another file at the same place is taken if all of this holds for it too, and
the log says what changed. Where it does not hold any more, or nothing is left there, PATH is looked through again.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcell import _program_places
from toolcell._paths import is_below
from toolcell._program_places import hops, is_executable, usable_path
from toolcelld.flavours import MARKERS

logger = logging.getLogger(__name__)

PATHS_MAX: Final = 64
"""A daemon has one PATH; tests have others."""
WHEN: Final = "%Y-%m-%d %H:%M:%S"

Fits: TypeAlias = Callable[[str], bool]
"""Whether the file at a path without links is a program of the kind."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was found, and which file it is."""

    name: str
    place: str
    """Where it was found: a directory and its name."""
    path: str
    """Its path, without links."""
    state: tuple[int, int, int, int]
    """Its size in bytes, its time of change in nanoseconds, its inode and its device. Another one is another file."""

    def __str__(self) -> str:
        size, changed, inode, device = self.state
        when = time.strftime(WHEN, time.localtime(changed / 1e9))
        link = f"{self.place}, which is " if self.place != self.path else ""
        where = f"inode {inode} of device {os.major(device)}:{os.minor(device)}"
        return f"{link}{self.path}, {size} bytes of {when}, {where}"


class Programs:
    """The programs on a PATH. Any thread may use it.

    Args:
        path: Directories to look in, as in the variable PATH; relative ones are passed over.
        home: The user's home directory.
    """

    def __init__(self, path: str, home: str) -> None:
        self._places = [place for place in path.split(os.pathsep) if os.path.isabs(place)]
        self._home = home
        self._writable: tuple[str, ...] = ()
        self._fixed: dict[str, Program] = {}
        self._lock = threading.Lock()

    @property
    def fixed(self) -> Sequence[Program]:
        """Those that were found so far, by name, as they were when they were fixed."""
        with self._lock:
            return [self._fixed[name] for name in sorted(self._fixed)]

    def avoid(self, writable: Collection[str]) -> None:
        """Take nothing from these directories from now on; those that a profile lets tools write to."""
        self._writable = tuple(map(os.path.realpath, writable))

    def find(
        self, name: str, *, avoid: Collection[str] = (), fits: Fits | None = None, also: Sequence[str] = ()
    ) -> Program | None:
        """Return a program, or None if there is none that may be taken. Blocks on the file system.

        Args:
            name: Its name, without a directory.
            avoid: Directories of projects, from which none is taken this time.
            fits: What is a program of this name; any executable file by default.
            also: Directories to look in after those of PATH; none by default.
        """
        fits = fits or is_executable
        with self._lock:
            found = self._current(name, fits) or self._anew(name, fits, also)
        if found is None or not self._fault(found, avoid):
            return found
        return next((one for one in self._candidates(name, fits, also) if not self._fault(one, avoid)), None)

    def passed_over(self, name: str, *, fits: Fits | None = None, avoid: Collection[str] = ()) -> list[str]:
        """Return what is a program of the name on PATH and is not taken, each with the reason."""
        found = self._candidates(name, fits or is_executable)
        return [f"{one.place} is not used: {fault}" for one in found if (fault := self._fault(one, avoid))]

    def usable_path(self, avoid: Collection[str] = ()) -> str:
        """Return the directories of PATH from which programs may be taken, in their order.

        Args:
            avoid: As in `find`.
        """

        return usable_path(self._places, self._home, (*self._writable, *avoid), MARKERS)

    def fault_now(self, program: Program) -> str:
        """Say why a program that was fixed is not used any more, or what is there in its stead; empty if it is the same."""
        now = _look(program.name, program.place, lambda _: True)
        if now is None:
            return "it is there no longer"
        return self._fault(now, ()) or ("" if now == program else f"it was replaced: now {now}")

    def _current(self, name: str, fits: Fits) -> Program | None:
        """Return what is where the program was fixed, if it may be taken still."""
        if (fixed := self._fixed.get(name)) is None:
            return None
        now = _look(name, fixed.place, fits)
        if now is None or self._fault(now, ()):
            return None
        if now != fixed:
            logger.warning("The program %s was replaced. It was %s. It is %s.", name, fixed, now)
            self._fixed[name] = now
        return now

    def _anew(self, name: str, fits: Fits, also: Sequence[str]) -> Program | None:
        """Look through PATH, and fix what is found."""
        found = next((one for one in self._candidates(name, fits, also) if not self._fault(one, ())), None)
        before = self._fixed.pop(name, None)
        if before is not None:
            why = self.fault_now(before) or "it is no program of the kind any more"
            other = f"{found} is used instead" if found else "no other is on PATH"
            logger.warning(
                "The program %s is not taken from %s any more: %s; %s.", name, before.place, why, other
            )
        if found is not None:
            self._fixed[name] = found
        return found

    def _candidates(self, name: str, fits: Fits, also: Sequence[str] = ()) -> Iterator[Program]:
        for place in dict.fromkeys((*self._places, *also)):
            if (found := _look(name, os.path.join(place, name), fits)) is not None:
                yield found

    def _fault(self, program: Program, avoid: Collection[str]) -> str:
        """Say why a program must not be taken, whatever link to it one looks at; empty if it may be."""
        avoid = (*self._writable, *avoid)
        return next(filter(None, (fault_of(each, self._home, avoid) for each in hops(program.place))), "")


@functools.lru_cache(maxsize=PATHS_MAX)
def programs_of(path: str, home: str) -> Programs:
    """Return the programs on a PATH: one object for each, as it keeps where they were found first.

    Args:
        path: As in `Programs`.
        home: As in `Programs`.
    """
    return Programs(path, home)


def project_directories(directory: str, home: str) -> tuple[str, ...]:
    """Return a session's directory and the git worktrees around it, but for one that contains the home directory."""
    found, above = [directory], directory
    while above != os.path.dirname(above):
        if not is_below(home, above) and os.path.lexists(os.path.join(above, ".git")):
            found.append(above)
        above = os.path.dirname(above)
    return tuple(found)


def fault_of(path: str, home: str, avoid: Collection[str] = ()) -> str:
    """Say why a program must not be taken from a path; empty if it may be. See `toolcell._program_places`."""
    return _program_places.fault_of(path, home, avoid, MARKERS)


def _look(name: str, place: str, fits: Fits) -> Program | None:
    try:
        path = os.path.realpath(place, strict=True)
        found = os.stat(path)
    except OSError:
        return None
    if not fits(path):
        return None
    return Program(name, place, path, (found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev))
