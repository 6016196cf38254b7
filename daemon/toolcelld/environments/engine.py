"""Finds the engine that runs tools in TypeScript and JavaScript, without running it.

An engine is a program: `bun`, else `node`. It is looked for on PATH and where Bun's installer puts it, and known by its
resolved path. What is no program itself, such as the script or the launcher of a version manager, is passed over, because
the cell executes one file. Which version it is, it says itself in the cell.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

__all__ = ["ENGINES", "INSTALLING", "Engine", "EngineName", "engine_here", "find_engine"]

EngineName: TypeAlias = Literal["bun", "node"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
"""In order of preference."""
INSTALLED: Final = (".bun/bin",)
"""Below the home directory, where a daemon that a service manager started has no PATH to it."""
INSTALLING: Final = (
    "install bun (https://bun.sh, or npm install --global bun) or node 24 or later (https://nodejs.org), "
    "so that it is on the PATH that the daemon starts with"
)
MAGIC: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs JavaScript."""

    name: EngineName
    program: str
    """Its path, without links."""
    state: tuple[int, ...] = ()
    """Changes when the program is replaced."""

    @property
    def key(self) -> str:
        """What a digest has to know of it."""
        return f"{self.name} {self.program} {self.state}"


def engine_here(wanted: EngineName | None = None) -> Engine | None:
    """Return the engine for a source of tools in this process's environment; `wanted` is as in `find_engine`."""
    return find_engine(wanted, os.environ.get("PATH", os.defpath), os.path.expanduser("~"))


def find_engine(wanted: EngineName | None, path: str, home: str) -> Engine | None:
    """Return the engine for a source of tools, or None if there is none.

    Args:
        wanted: The one that its configuration names; None for the first that there is.
        path: Directories to look in, as in the variable PATH; relative ones are passed over.
        home: The user's home directory.
    """
    places = [place for place in path.split(os.pathsep) if os.path.isabs(place)]
    places += [os.path.join(home, place) for place in INSTALLED]
    for name in ENGINES if wanted is None else (wanted,):
        for place in places:
            if (engine := _engine_at(name, os.path.join(place, name))) is not None:
                return engine
    return None


def _engine_at(name: EngineName, path: str) -> Engine | None:
    program = os.path.realpath(path)
    if not os.path.basename(program).startswith(name):
        return None  # the launcher of a version manager, which looks at the name that it was called by
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or os.read(descriptor, len(MAGIC)) != MAGIC:
            return None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if not os.access(program, os.X_OK):
        return None
    return Engine(name, program, (status.st_size, status.st_mtime_ns, status.st_ino))
