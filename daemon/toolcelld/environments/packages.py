"""The packages of tools in TypeScript and JavaScript: what a project's lock file asks for, and where it is kept.

    package.json + lock file + platform ─ bun or npm, in a cell ─▶ state directory/packages/KEY/node_modules

They are kept under the digest of both files, as environments of Python are, so equal ones share a directory, an edit
never changes what a worker uses, and nothing is written into a project, where programs outside of cells would run it.
The engine looks there after the project's own `node_modules`.

Only these two files are read, and parsed by the inspector alone; what they say is for the program that installs, in its
cell. Of the configuration of the project only what `registries` says counts, as it could name another registry, or send it
a token.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import platform
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcelld.environments.engine import EngineName, find_engine
from toolcelld.environments.programs import fault_of
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

FORMAT: Final = "1"
"""Part of every key; changed when packages are installed in another way."""
MANIFEST: Final = "package.json"
INSTALLED: Final = "node_modules"
SETTINGS: Final = ".npmrc"
LOCKS: Final[Mapping[str, EngineName]] = {"bun.lock": "bun", "bun.lockb": "bun", "package-lock.json": "node"}
"""In order of preference, with the engine whose program installs from it."""
FOREIGN: Final = {"yarn.lock": "yarn", "pnpm-lock.yaml": "pnpm"}
MANIFEST_BYTES_MAX: Final = 2**20
LOCK_BYTES_MAX: Final = 32 * 2**20
"""A lock of ten thousand packages has a third of it."""
OPTIONS: Final[Mapping[EngineName, tuple[str, ...]]] = {
    "bun": ("install", "--frozen-lockfile", "--ignore-scripts", "--no-progress", "--backend", "copyfile"),
    "node": ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress"),
}
NPM: Final = "npm/bin/npm-cli.js"
NPM_PLACES: Final = ("../lib/node_modules", "../share/nodejs", "../share")
"""Where the npm of a node is, from the directory of the program."""


Setting: TypeAlias = tuple[str, str]
"""A key of an `.npmrc` with its value."""
Opened: TypeAlias = Callable[[str, int], int]
"""Opens a file as `os.open` does; of a project without following links."""


class PackagesError(Exception):
    """Packages cannot be installed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file. One without content is made by the installation, and is then kept beside what it is of."""

    name: str
    content: bytes

    @property
    def engine(self) -> EngineName:
        """The engine whose program installs from it."""
        return LOCKS[self.name]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a directory asks for: its `package.json` and its lock files."""

    directory: str
    content: bytes
    locks: tuple[Lock, ...]
    settings: tuple[Setting, ...] = ()
    """Of its `.npmrc`."""

    def key(self, lock: Lock) -> str:
        """The name of the directory with the packages of this lock file."""
        facts = json.dumps([FORMAT, lock.name, platform.machine(), *platform.libc_ver()])
        digest = hashlib.blake2b(facts.encode(), digest_size=16)
        for content in (self.content, lock.content):
            digest.update(b"%d\0%s" % (len(content), content))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Manager:
    """A program that installs packages."""

    name: str
    words: tuple[str, ...]
    """The command, which installs what the lock file of the working directory says and runs no script."""
    readable: tuple[str, ...]
    """What its cell has to read."""


def manifest_above(directory: str, top: str) -> str:
    """Return the nearest directory with a `package.json`, upwards from one to another; empty if there is none.

    Args:
        directory: An absolute path.
        top: The last directory that is looked at.
    """
    here = directory
    while here != "/" and (here == top or here.startswith(top.rstrip("/") + "/")):
        if os.path.lexists(os.path.join(here, MANIFEST)):
            return here
        here = os.path.dirname(here)
    return ""


def read_manifest(directory: str, opened: Opened) -> Manifest | None:
    """Return what a directory asks for; None if its `package.json` names no package.

    Args:
        directory: A directory that has a `package.json`.
        opened: Opens its files.

    Raises:
        PackagesError: It cannot be installed.
    """
    content = _read(os.path.join(directory, MANIFEST), MANIFEST_BYTES_MAX, opened)
    asked = _parsed(content, os.path.join(directory, MANIFEST))
    if not asked.packages:
        return None
    if asked.workspaces:
        raise PackagesError(
            f"{directory}/{MANIFEST} has workspaces, whose packages lie elsewhere in the project.\n"
            f"  Install them there: bun install --ignore-scripts   or   npm ci --ignore-scripts"
        )
    locks = tuple(
        Lock(name, _read(path, LOCK_BYTES_MAX, opened))
        for name in LOCKS
        if os.path.lexists(path := os.path.join(directory, name))
    )
    if not locks:
        raise PackagesError(_without_lock(directory))
    return Manifest(directory, content, locks, read_settings(os.path.join(directory, SETTINGS), opened))


def manifest_of_packages(directory: str, packages: Collection[str]) -> Manifest:
    """Return a manifest that asks for packages, for which the installation makes the lock.

    Args:
        directory: What asks for them, for messages.
        packages: Each as NAME@VERSION.
    """
    asked = {name: version for name, _, version in (package.rpartition("@") for package in packages)}
    content = json.dumps({"private": True, "dependencies": asked}, sort_keys=True).encode()
    return Manifest(directory, content, (Lock("package-lock.json", b""),))


def _without_lock(directory: str) -> str:
    for name, manager in FOREIGN.items():
        if os.path.lexists(os.path.join(directory, name)):
            return (
                f"{directory} has a {name}; packages are installed from bun.lock or package-lock.json.\n"
                f"  Install them there: {manager} install --ignore-scripts"
            )
    return (
        f"{directory} has no lock file, so what would be installed is not said.\n"
        "  To make one: bun install --lockfile-only   or   npm install --package-lock-only"
    )


def _read(path: str, bytes_max: int, opened: Opened) -> bytes:
    try:
        return read_regular(path, bytes_max, opened=opened)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PackagesError(f"{path} is a link, which is not followed in a project.") from error
        raise PackagesError(f"{path}: {error.strerror}") from error
    except NotRegularError as error:
        raise PackagesError(f"{path} is {error}, not a file.") from error
    except TooLargeError as error:
        raise PackagesError(f"{path} has more than {bytes_max // 2**20} MiB.") from error


def _parsed(content: bytes, path: str) -> answers.NpmManifest:
    try:
        return answers.npm_manifest(content)
    except InspectionError as error:
        raise PackagesError(f"{path} {str(error).removesuffix('.')}.") from None


def declares(directory: str, package: str, opened: Opened) -> bool:
    """Whether a directory has a lock file, and its `package.json` names this package."""
    try:
        manifest = read_manifest(directory, opened)
    except PackagesError:
        return False
    return manifest is not None and package in _parsed(manifest.content, MANIFEST).packages


def installed(place: str, directory: str, opened: Opened) -> str:
    """Return the directory that has the packages which a directory asks for now; empty if there is none.

    Args:
        place: Where packages are kept.
        directory: A directory that has a `package.json`.
        opened: As in `read_manifest`.
    """
    if not os.path.isdir(place):
        return ""  # none was ever installed
    names = (name for name in (MANIFEST, *LOCKS) if os.path.lexists(os.path.join(directory, name)))
    facts = [(name, *_state(os.path.join(directory, name))) for name in names]
    return next(
        (
            found
            for key in _keys(directory, tuple(facts), opened)
            if os.path.isdir(os.path.join(found := os.path.join(place, key), INSTALLED))
        ),
        "",
    )


def _state(path: str) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return ()


@functools.lru_cache(maxsize=256)
def _keys(directory: str, facts: tuple[tuple[str | int, ...], ...], opened: Opened) -> tuple[str, ...]:  # noqa: ARG001  # facts: what the result depends on
    with contextlib.suppress(PackagesError):
        manifest = read_manifest(directory, opened)
        return tuple(manifest.key(lock) for lock in manifest.locks) if manifest is not None else ()
    return ()


def find_manager(
    engine: EngineName, path: str, home: str, avoid: Collection[str] = (), *, locked: bool = True
) -> Manager:
    """Return the program that installs from the lock files of an engine.

    Args:
        engine: As `Lock.engine`.
        path: As in `find_engine`.
        home: As in `find_engine`.
        avoid: As in `find_engine`.
        locked: Whether there is a lock file, which is the default. Else the program resolves what is asked for, and
            writes one.

    Raises:
        PackagesError: It is not there.
    """
    found = find_engine(engine, path, home, avoid)
    options = OPTIONS[engine] if locked else ("install", *OPTIONS[engine][1:])
    if engine == "bun":
        if found is None:
            raise PackagesError(
                "bun installs from it, and is not on PATH.\n  To install it: npm install --global bun"
            )
        return Manager("bun", (found.program, *options), (found.program,))
    if found is not None:
        here = os.path.dirname(found.program)
        for place in NPM_PLACES:
            script = os.path.realpath(os.path.join(here, place, NPM))
            if os.path.isfile(script) and not fault_of(script, home, avoid):
                package = os.path.dirname(os.path.dirname(script))
                return Manager("npm", (found.program, script, *options), (found.program, package))
    raise PackagesError(
        "npm installs from it, and is not beside a node on PATH.\n  It comes with node 24 or later."
    )


def asking(manager: Manager, package: str) -> Manager:
    """Return a program that asks for the newest version of a package of npm, of the one that installs packages.

    Args:
        manager: npm, as `find_manager` returns it.
        package: The name of the package.
    """
    program, script, *_ = manager.words
    return Manager("npm", (program, script, "view", "--json", "--", package, "version"), manager.readable)


def read_settings(path: str, opened: Opened = os.open) -> tuple[Setting, ...]:
    """Return the settings of an `.npmrc`, in order; none if it cannot be read.

    Args:
        opened: As in `read_manifest`.
    """
    try:
        return answers.npm_settings(read_regular(path, MANIFEST_BYTES_MAX, opened=opened))
    except (OSError, NotRegularError, TooLargeError, InspectionError):
        return ()
