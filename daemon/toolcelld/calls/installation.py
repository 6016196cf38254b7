"""Installs the packages of tools in TypeScript and JavaScript: bun or npm, in a cell that reaches the registry alone.

    a private directory  gets copies of package.json and the lock file
    the cell             installs there, with scripts off; it can write nothing else, and reads nothing of the user's
    a rename             makes the result visible, when the cell is empty

The program in the cell reads what strangers wrote, so what it leaves is only ever read inside of cells. The user's
credentials for these registries are in a file of the cell's own, and it reaches nothing that they are not for. A package
may be any directory of the cell ("file:/tmp"), which is copied into the result; so the directory of that file has a name
that cannot be guessed, in one that cannot be listed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from toolcelld.calls.functions.hook_run import FunctionListener, HookFailed, HookRefused, result_of, value_of
from toolcelld.calls.request import Request
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.cell.tmpdir import remove_tree
from toolcelld.config.hosts import ports_of
from toolcelld.environments.packages import (
    INSTALLED,
    MANIFEST,
    Lock,
    Manager,
    Manifest,
    PackagesError,
    asking,
    find_manager,
    manifest_of_packages,
)
from toolcelld.environments.programs import project_directories
from toolcelld.environments.registries import Registries, registries_for
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.network.refusals import RefusedHost
from toolcelld.output.redaction import Redactor
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.profiles import HostPaths
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.sandbox.policy import CellLimits, SandboxPolicy
from toolcelld.services import Services

INSTALL: Final = b'''
import os
import subprocess
from toolcell import tool

KEPT_BYTES_MAX = 16_384

@tool
def install(words: list[str], settings: str) -> dict[str, object]:
    """Run a program with these settings; return its exit status and the end of what it printed."""
    home = os.path.expanduser("~")
    os.makedirs(home)
    with open(os.open(os.path.join(home, ".npmrc"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(settings)
    os.chmod(os.path.dirname(home), 0o100)
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        kept = b""
        while piece := process.stdout.read1(KEPT_BYTES_MAX):
            kept = (kept + piece)[-KEPT_BYTES_MAX:]
    return {"status": process.returncode, "text": kept.decode(errors="replace")}
'''
INSTALL_SECONDS_MAX: Final = 600.0
"""As for a command of uv: large packages over a slow connection."""
LOAD_SECONDS_MAX: Final = 10.0
"""For loading the few lines above, which takes milliseconds."""
MESSAGE_CHARACTERS_MAX: Final = 1500
_QUOTED: Final = re.compile(r'^"([^"\s]+)"\s*$', re.MULTILINE)
"""A version as `npm view` prints it, among what else it may say."""
LIMITS: Final = CellLimits(
    memory_bytes=4 * 2**30, processes=256, open_files=4096, file_size_bytes=2**30, disk_bytes=2**30
)
"""A lock of thousands of packages takes npm a gigabyte."""
PLACES: Final = ("project", "cache")
"""The directories of an installation; the first one is the result."""
HOMES: Final = "/tmp/home"  # noqa: S108  # of the cell alone
"""The directory of the home directory; it cannot be listed."""
CERTIFICATES: Final = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
"""Variables that name a file of certificates, which the cell then reads."""
CONTEXT: Final = Request("", "install", b"").context("", "", "")


class _Refusals(FunctionListener):
    """A listener that keeps which hosts the program asked for and may not reach."""

    def __init__(self, sequence: int) -> None:
        super().__init__(sequence)
        self.refused: list[str] = []

    def on_refused(self, refused: RefusedHost) -> None:
        self.refused.append(refused.why)


class Installations:
    """The packages in a state directory.

    Args:
        services: Their ruleset knows the host, and where packages are kept.
        prefork_for: Returns the preforked cells for a cell's specification.
        on_change: Called after every change of a worker's state.
    """

    def __init__(
        self,
        services: Services,
        prefork_for: Callable[[CellSpec], PreforkedCells],
        on_change: Callable[[Worker], None],
    ) -> None:
        self._services = services
        self._prefork_for = prefork_for
        self._on_change = on_change
        self._turn = asyncio.Lock()  # one at a time, as each loads a network and a disk

    @property
    def _host_paths(self) -> HostPaths:
        return self._services.ruleset.host_paths

    def choose(self, manifest: Manifest) -> tuple[Lock, Manager]:
        """Return the lock file to install from, and the program that does: the first whose program is there.

        Raises:
            PackagesError: There is no program for any of the lock files.
        """
        paths = self._host_paths
        path = paths.environment.get("PATH", os.defpath)
        failures: list[str] = []
        avoid = project_directories(manifest.directory, paths.home)  # it gets the credentials of the registry
        for lock in manifest.locks:
            try:
                return lock, find_manager(lock.engine, path, paths.home, avoid, locked=bool(lock.content))
            except PackagesError as error:
                failures.append(f"{os.path.join(manifest.directory, lock.name)}: {error}")
        raise PackagesError("\n".join(failures))

    def is_installed(self, manifest: Manifest, lock: Lock) -> bool:
        """Whether the packages of a lock file are there."""
        return os.path.isdir(os.path.join(self._host_paths.packages, manifest.key(lock)))

    async def install(self, manifest: Manifest, lock: Lock, manager: Manager) -> None:
        """Install the packages of a lock file, unless they are installed. When cancelled, the cell is ended and nothing is left.

        Raises:
            PackagesError: It cannot be installed.
        """
        await self._in_work(manifest, lock, manager, key=manifest.key(lock))

    async def newest(self, package: str, directory: str) -> str:
        """Return the newest version of a package of npm, as its registry says now.

        Args:
            package: Its name.
            directory: What asks for it, for messages.

        Raises:
            PackagesError: The registry cannot be asked, or has none.
        """
        manifest = manifest_of_packages(directory, [f"{package}@latest"])
        lock, manager = self.choose(manifest)
        said = await self._in_work(manifest, lock, asking(manager, package))
        found: list[str] = _QUOTED.findall(said)
        if not found:
            raise PackagesError(f"npm names no version of {package}")
        return found[-1]

    async def _in_work(self, manifest: Manifest, lock: Lock, manager: Manager, *, key: str = "") -> str:
        """Run a program in a new directory of an installation; return the end of what it printed, and keep the result under a key."""
        if lacking := self._host_paths.host.missing("strict"):
            raise PackagesError(
                f"packages are installed in a cell that reaches their registry alone, and this host cannot give it: {lacking}\n"
                "  To see what is missing: toolcell doctor\n"
                f"  To install them yourself, in {manifest.directory}: "
                f"{'bun install' if manager.name == 'bun' else 'npm ci'} --ignore-scripts"
            )
        async with self._turn:
            if key and self.is_installed(manifest, lock):
                return ""
            work = os.path.join(self._host_paths.packages, "work")
            try:
                await asyncio.to_thread(_lay_out, work, manifest, lock)
                environment = self._host_paths.environment
                registries = registries_for(environment, lock.content or manifest.content, manifest.settings)
                said = await self._run(work, manager, registries)
                if key:
                    await asyncio.to_thread(_publish, work, self._host_paths.packages, key)
                return said
            except OSError as error:
                raise PackagesError(f"the packages cannot be kept: {error}") from error
            finally:
                await asyncio.shield(asyncio.to_thread(_clear, work))

    async def _run(self, work: str, manager: Manager, registries: Registries) -> str:
        """Run a program; return the end of what it printed. Raises `PackagesError` where it fails."""
        worker = Worker("packages", self._spec(work, manager, registries), self._on_change)
        listener = _Refusals(1)
        # Not as variables or words of a command, which other processes of the user can read.
        arguments = json.dumps({"words": manager.words, "settings": registries.npmrc()}).encode()
        try:
            await worker.start(self._prefork_for(worker.spec), load_seconds=LOAD_SECONDS_MAX)
            worker.fire(WorkerEvent.LEASE)
            if registries.secrets:
                worker.cell.redact(Redactor(registries.secrets))
            found = value_of(
                await result_of(worker, listener, "install", arguments, CONTEXT, INSTALL_SECONDS_MAX)
            )
        except (StartFailed, HookFailed, HookRefused) as error:
            raise PackagesError(f"{manager.name} cannot be run: {error}") from error
        finally:
            if worker.pid and worker.state is not WorkerState.DEAD:
                await worker.end()  # also when cancelled: the directory is its own until it is empty
        result = cast("Mapping[str, Any]", found)
        if result["status"]:
            text = str(result["text"]).strip()[-MESSAGE_CHARACTERS_MAX:] or f"exit status {result['status']}"
            refused = "".join(f"\n  {why}" for why in listener.refused)
            raise PackagesError(f"{manager.name} cannot install from {registries.default}:\n{text}{refused}")
        return str(result["text"])

    def _spec(self, work: str, manager: Manager, registries: Registries) -> CellSpec:
        paths = self._host_paths
        certificates = {name: paths.environment[name] for name in CERTIFICATES if paths.environment.get(name)}
        project, cache = (os.path.join(work, name) for name in PLACES)
        environment = {
            **certificates,
            "PATH": os.defpath,
            "HOME": os.path.join(HOMES, secrets.token_hex(16)),
            "npm_config_registry": registries.default,
            "npm_config_cache": cache,
            "npm_config_fetch_retry_mintimeout": "1000",
            "npm_config_fetch_retry_maxtimeout": "4000",
            "npm_config_logs_max": "0",
            "BUN_CONFIG_REGISTRY": registries.default,
            "BUN_INSTALL_CACHE_DIR": cache,
            "BUN_TMPDIR": cache,  # from where it renames, and /tmp is another file system
        }
        policy = SandboxPolicy(
            "strict",
            readable=(*manager.readable, *certificates.values()),
            writable=(project, cache),
            hidden=tuple(dict.fromkeys((paths.home, *paths.hidden))),
            network="proxy",
            hosts=registries.hosts,
            ports=ports_of(registries.hosts),
        )
        file = ToolFile("/install.py", "packages", "local", "install", INSTALL, "packages", "/")
        return CellSpec(file, project, tuple(sorted(environment.items())), LIMITS, policy, owner="packages")


def _lay_out(work: str, manifest: Manifest, lock: Lock) -> None:
    """Make the directory of an installation, with copies of what it is from."""
    _clear(work)  # of a daemon that was killed
    for name in PLACES:
        os.makedirs(os.path.join(work, name), mode=0o700)
    project = os.path.join(work, PLACES[0])
    for name, content in ((MANIFEST, manifest.content), (lock.name, lock.content)):
        if not content:
            continue  # npm makes it
        with open(os.path.join(project, name), "xb") as file:
            file.write(content)


def _clear(work: str) -> None:
    if os.path.lexists(work):
        # Packages may have trees that are too deep for shutil, or directories that cannot be entered
        remove_tree(work)


def _publish(work: str, packages: str, key: str) -> None:
    """Give the result its name. Raises `PackagesError` if there is none."""
    project = os.path.join(work, PLACES[0])
    made = os.path.join(project, INSTALLED)
    if os.path.islink(made) or not os.path.isdir(made):
        raise PackagesError(
            "nothing was installed: all that the lock file has are optional packages of other systems."
        )
    os.rename(project, os.path.join(packages, key))
