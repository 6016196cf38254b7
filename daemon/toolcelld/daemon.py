"""The composition root: builds the parts of the daemon, connects them, and closes them.

It knows no gRPC: `server` binds the socket around it, and the services in `rpc` use its parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

from toolcelld import linux
from toolcelld.calls.functions.definitions import Definitions
from toolcelld.calls.installation import Installations
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.directory import CatalogRules
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.catalog.registry import CatalogRegistry
from toolcelld.catalog.watch import Watch
from toolcelld.cell.cgroup import CgroupTree
from toolcelld.cell.kernel_log import KernelLog
from toolcelld.cell.tmpdir import TemporaryDirectories, remove_tree
from toolcelld.cell.zygote import Zygote
from toolcelld.config.load import Config
from toolcelld.configuration import Configuration
from toolcelld.environments.builder import BuildError, Environments
from toolcelld.environments.kept import Kept, Place
from toolcelld.environments.packages import Lock, Manager, Manifest, PackagesError
from toolcelld.environments.programs import project_directories
from toolcelld.event_log import Broadcast, EventLog, LogLevel, LogLine, OperatorEvent, about
from toolcelld.inspector import process as inspector
from toolcelld.lifecycle import DAEMON, DaemonEvent, DaemonState, StateMachine
from toolcelld.output.spill import SpillStore
from toolcelld.policy.decisions.disabled import texts
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.ruleset import Ruleset
from toolcelld.pool.cell_packages import CellPackages
from toolcelld.pool.describer import Describer
from toolcelld.pool.history import WorkerHistory
from toolcelld.pool.pool import Pool
from toolcelld.pool.prefork import Preforks
from toolcelld.pool.probe import probe_host
from toolcelld.pool.worker import Worker
from toolcelld.records.ledger import Records
from toolcelld.rules import Rules
from toolcelld.services import Services
from toolcelld.sessions.registry import Sessions
from toolcelld.store import Store
from toolcelld.worker.zygote.launch import LaunchedZygote

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 10.0
"""Seconds for running calls when the daemon stops; the unit's TimeoutStopSec is longer."""
IDLE_CHECKS: Final = 10
"""Checks for open sessions within the idle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """Command-line options of the daemon."""

    socket: str
    state_directory: str
    config_paths: tuple[str, ...] | None = None  # None: those of the user
    last_good: bool = False  # whether it starts with those as they were when they had no mistake
    only: tuple[str, ...] = ()  # tool files; empty: all that the sources have
    tests: bool = False  # whether calls run the tests of tools in place of the tools
    idle_exit_seconds: float | None = None
    private: bool = False  # ends at once, whatever runs
    life_line: bool = False  # ends with its stdin
    confined: bool = False  # gives no tool the whole network, or no sandbox
    drain_seconds: float = DRAIN_SECONDS
    listen: str = ""  # HOST:PORT for clients of other machines; empty: that of the configuration
    node: str = ""  # the name for clients of other machines; empty: that of the configuration
    invite: str = ""  # the directory that a client of another machine may join; empty for none
    umask: int = 0o077  # of the files that tools make


class Daemon(StateMachine[DaemonState, DaemonEvent]):
    """The parts of a running daemon; operators use them, sessions and calls know `Services` alone."""

    table = DAEMON
    state = DaemonState.STARTING

    def __init__(
        self,
        options: DaemonOptions,
        cgroups: CgroupTree,
        zygote: LaunchedZygote,
        tasks: asyncio.TaskGroup,
    ) -> None:
        state = options.state_directory
        self.options = options
        self.socket = options.socket
        self.started_at = time.time()
        self.environment: Mapping[str, str] = dict(os.environ)
        self.configuration = Configuration(
            state,
            self.environment,
            paths=options.config_paths,
            last_good=options.last_good,
            only=options.only,
            tests=options.tests,
        )
        config = self.config
        logbook, happenings = EventLog(), Broadcast[OperatorEvent]()
        self._stopping = asyncio.Event()
        # Cells, and what they get.
        self.groups = cgroups
        self._temporary_directories = TemporaryDirectories(os.path.join(state, "scratch"), tasks)
        self._zygote = Zygote(
            sys.executable, _log_zygote, cgroups, zygote, immortal=config.daemon.immortal_objects
        )
        self._preforks = Preforks(self._zygote, tasks, self._temporary_directories)
        self._environments = Environments(
            os.path.join(state, "environments"),
            self.environment,
            uv=lambda: self.config.environments.uv or "",
            source_builds=lambda: self.config.environments.source_builds,
        )
        store = Store(os.path.join(state, "toolcell.sqlite"))
        self.kept = Kept(state, store, in_use=self._places_in_use, remove=remove_tree, tidy=self._tidy_kept)
        packages = CellPackages(
            self._environments,
            self.kept,
            directory=self._packages,
            tell=lambda path, text: self.sessions.prepare(path, text),  # noqa: PLW0108 # these are made below
            log=logbook.write,
            on_listed=lambda file, listed: catalogs.relisting.take(file, listed),  # noqa: PLW0108
        )
        self.worker_history = WorkerHistory(happenings)
        pool = Pool(
            self._preforks.for_cell,
            tasks,
            workers_max=config.daemon.workers,
            idle_seconds=config.daemon.worker_idle_seconds,
            grace_seconds=config.daemon.abort_grace_seconds,
            load_seconds=config.daemon.load_timeout_seconds,
            on_change=self._worker_changed,
            on_shut_out=self.worker_history.on_shut_out,
            make_worker=packages.make_worker,
        )
        describer = Describer(
            self._preforks.for_cell,
            load_seconds=config.daemon.load_timeout_seconds,
            on_change=self._worker_changed,
            make_worker=packages.make_worker,
        )
        spills = SpillStore(
            os.path.join(state, "outputs"),
            store,
            bytes_per_call=config.spill.bytes_per_call,
            quota_bytes=config.spill.quota_bytes,
            retention_seconds=config.spill.retention_seconds,
        )
        # Tools, and the calls of them.
        catalogs = CatalogRegistry(
            CatalogRules(
                lambda: self.config,
                is_trusted=lambda: self.services.ruleset.is_trusted,
                define=Definitions(pool, lambda: self.services.ruleset).changed,
                taken_out=lambda: texts(self.services.ruleset.disabled),
                settle=lambda catalog: self.rules.settle(catalog),  # noqa: PLW0108 # they are made below
            ),
            lambda file: self.services.describe(file),  # noqa: PLW0108 # it is made below
            store,
            tell=self._tell_server,
        )
        self.services = Services(
            tasks=tasks,
            store=store,
            ruleset=Ruleset(config, self._host_paths(HostCapabilities())),  # until the host has been examined
            packages=packages,
            pool=pool,
            describer=describer,
            spills=spills,
            catalogs=catalogs,
            watch=Watch(
                lambda directory: sources_of(self.config, directory), catalogs.read, catalogs.described, tasks
            ),
            logbook=logbook,
            happenings=happenings,
        )
        self.log_level = LogLevel(happenings, tasks)
        self.installations = Installations(self.services, self._preforks.for_cell, self._worker_changed)
        self.sessions = Sessions(self.services)
        self.rules = Rules(self.services, self.sessions)
        self.records = Records(
            os.path.join(state, "records.sqlite"),
            config.records,
            self.sessions.recent,
            happenings,
        )
        self._why = "it failed"  # it was stopped

    @property
    def config(self) -> Config:
        """The configuration that was read last."""
        return self.configuration.current

    @property
    def _packages(self) -> str:
        """The directory of the packages of tools in TypeScript and JavaScript."""
        return os.path.join(os.path.realpath(self.options.state_directory), "packages")

    def _host_paths(self, host: HostCapabilities) -> HostPaths:
        """Return the host's facts on which permits depend."""
        kept = [self.options.state_directory, os.path.dirname(self.socket), *self.configuration.directories]
        hidden = tuple(place for place in map(os.path.realpath, kept) if place != "/")
        return HostPaths(
            host,
            os.path.expanduser("~"),
            hidden,
            self.environment,
            self._packages,
            self.options.umask,
            confined=self.options.confined,
        )

    @property
    def cells_ready(self) -> int:
        """The number of preforked cells that are ready."""
        return self._preforks.ready

    @property
    def kill_method(self) -> str:
        """How cells are killed on this host: "cgroup", "landlock" or "children"."""
        if self.groups.base:
            return "cgroup"
        return "landlock" if linux.landlock_abi() >= linux.LANDLOCK_ABI_SIGNAL else "children"

    # What the parts need

    def _worker_changed(self, worker: Worker) -> None:
        self.sessions.on_worker_changed(worker)
        self.worker_history.on_worker_changed(worker)

    def _places_in_use(self) -> list[Place]:
        return [
            place
            for worker in self.services.pool.workers
            for place in self.services.packages.places(worker.spec)
        ]

    async def _tidy_kept(self) -> None:
        await self._environments.tidy()
        self.rules.replace()  # permits that were decided before name what was removed

    async def install(self, manifest: Manifest, lock: Lock, manager: Manager) -> None:
        """Install packages, and note who asked for them. Raises `PackagesError`."""
        await self.installations.install(manifest, lock, manager)
        self.kept.used(("packages", manifest.key(lock)), manifest.directory)

    async def newest(self, package: str, directory: str, *, npm: bool) -> str:
        """Return the newest version of a package, as its registry says now.

        Args:
            package: Its name.
            directory: That of the project that it is asked for: no program is taken from there.
            npm: Whether it is one of npm, and not of Python.

        Raises:
            PackagesError: The registry cannot be asked, or has none.
        """
        if npm:
            return await self.installations.newest(package, directory)
        avoid = project_directories(directory, self.environment.get("HOME", "/"))
        try:
            return await self._environments.newest(package, avoid)
        except BuildError as error:
            raise PackagesError(str(error)) from error

    async def look_again(self, *, wait_seconds: float) -> list[Catalog]:
        """Decide anew what cells get after packages were installed, and describe what could not be described without them.

        Args:
            wait_seconds: How long to wait for the descriptions; later ones reach the sessions as a change.
        """
        self.rules.replace()  # permits that were decided before name no packages
        return await self.services.catalogs.refresh_all(wait_seconds=wait_seconds)

    def _tell_server(self, file: ToolFile, text: str) -> None:
        logger.warning("The MCP server %s: %s.", file.stem, text, extra=about(tool=file.stem))
        self.services.logbook.write(LogLine(time.time(), "log", "warning", text, file.stem))

    async def reload(self) -> list[Catalog]:
        """Read the configuration and rescan all directories. Raises `ConfigError` and changes nothing then."""
        return await self.configuration.reload(self.services, self.sessions, self.rules, self.records)

    # Its life

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Start the parts, examine the host, load the hooks; on exit end every cell and close the parts.

        On an exception within, the cells are ended, and the rest is left to the end of the process.
        """
        services = self.services
        inspector.start()
        self.records.start()
        await asyncio.to_thread(self.configuration.find_programs)
        await services.store.start()
        await services.spills.start()
        await self._temporary_directories.start()
        sweeping = [
            services.tasks.create_task(services.spills.sweep_for_ever()),
            services.tasks.create_task(
                self.kept.sweep_for_ever(lambda: self.config.environments.keep_seconds)
            ),
        ]
        async with self._zygotes(), services.catalogs:
            host = await probe_host(self._preforks.for_cell, self._temporary_directories.place)
            await self.rules.recall(host_paths=self._host_paths(host))
            self.rules.replace(hooks=await self.rules.hooks(self.config))
            yield
            self.log_level.close()
            await services.pool.aclose()
            await services.describer.aclose()
            self.sessions.limit_monitor.close()
        for task in sweeping:
            task.cancel()
        await services.spills.aclose()
        await services.store.aclose()
        await self.records.aclose(self._why)

    @contextlib.asynccontextmanager
    async def _zygotes(self) -> AsyncGenerator[None]:
        """Prefork cells for the own interpreter; on exit end all unused cells and all zygotes."""
        self._zygote.kernel_log = log = KernelLog.opened()
        self._preforks.prepare()
        try:
            yield
        finally:
            await self._preforks.aclose()
            await self._environments.aclose()
            await self._zygote.aclose()
            if log is not None:
                log.close()
            self.groups.close()

    def stop(self, why: str) -> None:
        """Begin to drain. Idempotent."""
        if not self._stopping.is_set():
            logger.info("Stopping: %s.", why)
            self._why = why
            self._stopping.set()

    async def stopped(self) -> None:
        """Wait until `stop` was called, or until there was no session for the idle time of the options."""
        watching = self.services.tasks.create_task(self._stop_when_idle())
        await self._stopping.wait()
        watching.cancel()

    async def _stop_when_idle(self) -> None:
        seconds = self.options.idle_exit_seconds
        if seconds is None:
            return
        quiet = 0
        while quiet < IDLE_CHECKS:
            await asyncio.sleep(seconds / IDLE_CHECKS)
            quiet = 0 if self.sessions.all else quiet + 1
        self.stop(f"idle for {seconds:g} s")


def _log_zygote(line: str) -> None:
    logger.warning("%s: %s", sys.executable, line)
