"""Finds the engine that runs tools in TypeScript and JavaScript, without running it.

An engine is a program: `bun`, else `node`. It is looked for on PATH and where Bun's installer puts it, and known by its
resolved path. What is no program itself, such as the script or the launcher of a version manager, is passed over, because
the cell executes one file. Which version it is, it says itself in the cell.

The engine runs the user's own tools with their secrets, so it comes from where `programs` allows it.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from toolcelld.environments.programs import programs_of, project_directories
from toolcelld.files.paths import held

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
class ScriptEngine:
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


def engine_here(wanted: EngineName | None = None, directory: str = "") -> ScriptEngine | None:
    """Return the engine for a source of tools in this process's environment.

    Args:
        wanted: As in `find_engine`.
        directory: The session's directory: nothing is taken from its project. "", the default, for none.
    """
    home = os.path.expanduser("~")
    avoid = () if not directory else project_directories(directory, home)
    return find_engine(wanted, os.environ.get("PATH", os.defpath), home, avoid)


def find_engine(
    wanted: EngineName | None, path: str, home: str, avoid: Collection[str] = ()
) -> ScriptEngine | None:
    """Return the engine for a source of tools, or None if there is none.

    Args:
        wanted: The one that its configuration names; None for the first that there is.
        path: Directories to look in, as in the variable PATH; relative ones are passed over.
        home: The user's home directory.
        avoid: Directories of projects, from which none is taken.
    """
    programs = programs_of(path, home)
    also = [os.path.join(home, place) for place in INSTALLED]
    for name in ENGINES if wanted is None else (wanted,):
        if (found := programs.find(name, avoid=avoid, fits=FITS[name], also=also)) is not None:
            return ScriptEngine(name, found.path, found.state)
    return None


def passed_over(path: str, home: str, avoid: Collection[str] = ()) -> list[str]:
    """Return what is an engine and is not taken, each with the reason; for arguments as of `find_engine`."""
    programs = programs_of(path, home)
    return [line for name in ENGINES for line in programs.passed_over(name, fits=FITS[name], avoid=avoid)]


def _is_engine(name: EngineName, program: str) -> bool:
    if not os.path.basename(program).startswith(name):
        return False  # the launcher of a version manager, which looks at the name that it was called by
    try:
        with held(os.open(program, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)) as descriptor:
            is_one = stat.S_ISREG(os.fstat(descriptor).st_mode) and os.read(descriptor, len(MAGIC)) == MAGIC
    except OSError:
        return False
    return is_one and os.access(program, os.X_OK)


FITS: Final = {name: functools.partial(_is_engine, name) for name in ENGINES}
