"""Finds out what a Python interpreter is, without running it.

An interpreter is named by its path, which is usually a link in an environment's `bin` directory. The environment has
the packages; the link leads to the program of a base interpreter, which has the standard library. A project can write
its environment, so nothing in it decides what a cell may read: of `pyvenv.cfg` only `include-system-site-packages` is
used, and `home` only for environments that have a copy of the program in place of a link, under the same checks.

The packages of an environment fit Toolcell's own interpreter if both have the same base and agree on the packages that
every worker has loaded already (`LOADED`). Such an environment is added to an ordinary worker, which takes about a
millisecond; another interpreter is executed by the cell, which takes some hundred.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolcell._paths import is_below
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

LOADED: Final = ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")
"""Packages that a worker has imported before it loads a tool."""
OLDEST: Final = (3, 11)
"""The oldest Python that Toolcell's worker runs on."""
ENVIRONMENTS: Final = (".venv", "venv")
"""Directories at the root of a project that are its environment, in order of precedence."""
CONFIGURATION_BYTES_MAX: Final = 64 * 1024
ENTRIES_MAX: Final = 100_000
"""Of one directory of packages; environments with ten thousand are large."""
LINKS_MAX: Final = 40
"""As the kernel has it."""

_PROGRAM: Final = re.compile(r"python(3)\.(\d{1,2})t?")


class InterpreterError(Exception):
    """An interpreter cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What a cell has to know of an interpreter."""

    executable: str
    """As it was named: what `sys.executable` says."""
    prefix: str
    """The environment, or the base itself: what `sys.prefix` says."""
    packages: tuple[str, ...]
    """The directories of packages, which have `.pth` files."""
    version: str
    """As in "3.12"."""
    program: str = ""
    """The resolved program that the cell executes; empty where the packages fit Toolcell's own interpreter."""
    readable: tuple[str, ...] = ()
    """The environment and the base interpreter, with the links that lead there."""
    state: tuple[int, ...] = ()
    """Changes when packages are installed or removed."""
    engine: str = ""
    """ "bun" or "node" for an engine, which runs JavaScript and has no packages of Python."""

    @property
    def is_environment(self) -> bool:
        """Whether it has packages of its own apart from its base."""
        return os.path.exists(os.path.join(self.prefix, "pyvenv.cfg"))


def environment_in(directory: str) -> str | None:
    """Return the path of the interpreter of the environment at the root of a project, or None."""
    for name in ENVIRONMENTS:
        prefix = os.path.join(directory, name)
        executable = os.path.join(prefix, "bin", "python")
        if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) and os.path.lexists(executable):
            return executable
    return None


def find(executable: str, home: str) -> Interpreter:
    """Find out what an interpreter is.

    Args:
        executable: Its absolute path.
        home: The user's home directory, which never becomes readable as a whole.

    Raises:
        InterpreterError: It cannot be used.
    """
    prefix = os.path.dirname(os.path.dirname(executable))
    configuration = _configuration(prefix)
    program, links = _follow(executable)
    if configuration is not None and program.startswith(os.path.join(prefix, "")):
        # A copy of the program: its base is where `home` says, if that is one.
        version = _newest_version(prefix)
        program, links = _follow(os.path.join(configuration.get("home", "/"), f"python{version}"))
    base, version = _base_of(program, executable)
    if configuration is None:
        prefix = base
    library = os.path.join(prefix, "lib", f"python{version}")
    packages = [os.path.join(library, "site-packages")]
    if configuration is None:
        packages.append(os.path.join(base, "lib/python3/dist-packages"))  # Debian's
    elif configuration.get("include-system-site-packages", "").lower() == "true":
        packages.append(os.path.join(base, "lib", f"python{version}", "site-packages"))
    packages = [place for place in packages if os.path.isdir(place)]
    fits = program == own_program() and _agree(packages[:1])
    roots = () if base == "/" else _checked_roots(base, links, home, executable)
    return Interpreter(
        executable=executable,
        prefix=prefix,
        packages=tuple(packages),
        version=version,
        program="" if fits else program,
        readable=tuple(dict.fromkeys((prefix, *roots))) if base != "/" else (prefix,),
        state=tuple(os.stat(place).st_mtime_ns for place in packages),
    )


def _configuration(prefix: str) -> Mapping[str, str] | None:
    """Return the keys of an environment's `pyvenv.cfg`; None if the directory is no environment."""
    try:
        raw = read_regular(os.path.join(prefix, "pyvenv.cfg"), CONFIGURATION_BYTES_MAX)
        return answers.python_environment(raw)
    except (OSError, NotRegularError, TooLargeError, InspectionError):
        return None


def _follow(executable: str) -> tuple[str, tuple[str, ...]]:
    """Return the resolved program and the directories above `bin` of every link on the way to it."""
    path, above = executable, list[str]()
    for _ in range(LINKS_MAX):
        above.append(os.path.dirname(os.path.dirname(path)))
        try:
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        except OSError:
            break  # the last one
    return os.path.realpath(executable), tuple(above)


def _newest_version(prefix: str) -> str:
    """Return the version of Python that an environment has packages for."""
    try:
        names = os.listdir(os.path.join(prefix, "lib"))
    except OSError:
        return "3"
    found = [(int(match[2]), name) for name in names if (match := _PROGRAM.fullmatch(name))]
    return max(found)[1].removeprefix("python") if found else "3"


def _base_of(program: str, executable: str) -> tuple[str, str]:
    """Return the root of a base interpreter and its version; raise `InterpreterError` if the program is none."""
    match = _PROGRAM.fullmatch(os.path.basename(program))
    root = os.path.dirname(os.path.dirname(program))
    if match is None or not os.path.isfile(program):
        raise InterpreterError(
            f"{executable} leads to {program}, which is no Python interpreter (bin/pythonX.Y).\n"
            f"  To make the environment anew: python3 -m venv --clear {os.path.dirname(os.path.dirname(executable))}"
        )
    version = match[0].removeprefix("python")
    if (int(match[1]), int(match[2])) < OLDEST:
        raise InterpreterError(f"{executable} is Python {version}; tools need 3.{OLDEST[1]} or newer.")
    library = os.path.join(root, "lib", f"python{version}", "os.py")
    for path in (root, program, library):
        try:
            status = os.stat(path)
        except OSError as error:
            raise InterpreterError(
                f"{executable} leads to {program}, which has no standard library: {path}: {error.strerror}"
            ) from None
        # The owner of an unmapped user shows as nobody's (65534), and is not ours to check.
        if status.st_uid not in (0, os.geteuid(), 65534) or (
            status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        ):
            raise InterpreterError(
                f"{executable} leads to {program}, and {path} belongs to another user or can be written by all.\n"
                "  Use an interpreter that belongs to you or to root."
            )
    return root, version


def _checked_roots(base: str, links: tuple[str, ...], home: str, executable: str) -> tuple[str, ...]:
    """Return the base and the links to it. A base that has the home directory below it would reveal all of it."""
    if is_below(home, base) and base != "/usr":
        raise InterpreterError(
            f"{executable} leads to an interpreter in {base}, and all of {base} would have to be readable.\n"
            "  Use an interpreter in a directory of its own."
        )
    # A directory that is a link to the base, as `cpython-3.12` is to `cpython-3.12.4`: the links in `bin` name it.
    return (base, *(link for link in links if link != base and os.path.realpath(link) == base))


@functools.cache
def own_program() -> str:
    """Return the resolved program of this interpreter."""
    return os.path.realpath(sys.executable)


@functools.cache
def own_versions() -> Mapping[str, str]:
    """Return the versions of the packages in `LOADED` that this interpreter has."""
    found: dict[str, str] = {}
    for place in reversed(sys.path):
        found |= _versions(place)
    return found


def _agree(packages: list[str]) -> bool:
    """Whether the packages that a worker has loaded are absent there, or of the same version."""
    own = own_versions()
    return all(own.get(name) == version for place in packages for name, version in _versions(place).items())


def _versions(place: str) -> Mapping[str, str]:
    """Return the versions of the packages in `LOADED`, by the names of the directories with their metadata."""
    found: dict[str, str] = {}
    try:
        with os.scandir(place) as entries:
            for entry, _ in zip(entries, range(ENTRIES_MAX), strict=False):
                name, dash, version = entry.name.removesuffix(".dist-info").rpartition("-")
                if (
                    dash
                    and entry.name.endswith(".dist-info")
                    and (known := name.replace("-", "_").lower()) in LOADED
                ):
                    found[known] = version
    except OSError:
        return {}
    return found
