"""The composition root: builds the parts, binds the socket, tells systemd, drains.

One root TaskGroup owns every task that outlives a function. The daemon ends by a signal, by the
end of its owner's pipe (`--private`), or after being idle for so long (`--idle-exit`); each of
them drains: new sessions and calls are refused, running ones get the time of the drain, then
they are stopped, and when every cell is empty the daemon is gone.

Longer than 400 lines because every part is built and closed here, in an order that matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer
from grpc_reflection.v1alpha import reflection

import toolcelld
from toolcell import _paths
from toolcell_proto.v1 import operator_pb2, operator_pb2_grpc, toolcell_pb2, toolcell_pb2_grpc
from toolcelld import linux
from toolcelld.calls.call import Call
from toolcelld.calls.functions.definitions import Definitions
from toolcelld.calls.installation import Installations
from toolcelld.calls.limit_monitor import LimitMonitor
from toolcelld.calls.outcomes.history import CallHistory
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.describing.description import Broken, Description
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.catalog.hooks import Hook, find_hooks, hook_of
from toolcelld.catalog.problem import Problem
from toolcelld.catalog.registry import CatalogRegistry
from toolcelld.catalog.watch import Watch
from toolcelld.cell.cgroup import CgroupTree
from toolcelld.cell.tmpdir import TemporaryDirectories, remove_tree
from toolcelld.cell.zygote import Zygote
from toolcelld.config.load import Config, ConfigError, load
from toolcelld.environments.builder import Environments
from toolcelld.environments.kept import Kept, Place
from toolcelld.environments.packages import Lock, Manager, Manifest
from toolcelld.errors import Refusal
from toolcelld.event_log import Broadcast, EventLog, EventLogHandler, LogLine
from toolcelld.lifecycle import DAEMON, DaemonEvent, DaemonState, Machine, WorkerState
from toolcelld.output.spill import SpillStore
from toolcelld.policy import trust
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.project import Project
from toolcelld.policy.ruleset import Ruleset
from toolcelld.policy.trust import Trusted
from toolcelld.pool.cell_packages import CellPackages
from toolcelld.pool.pool import Pool
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.probe import probe_host
from toolcelld.pool.quarantine import Quarantined
from toolcelld.pool.worker import Worker
from toolcelld.rpc.agent_service import LOOK_SECONDS_MAX, ToolCell
from toolcelld.rpc.auth import TokenInterceptor
from toolcelld.rpc.interceptors import Parser
from toolcelld.rpc.operator_service import Operator, OperatorEvent
from toolcelld.runtime_directory import RuntimeDirectory
from toolcelld.sandbox.policy import Enclosure
from toolcelld.sessions.project_watch import ProjectWatches
from toolcelld.sessions.registry import Sessions
from toolcelld.store import Store
from toolcelld.worker.zygote.launch import LaunchedZygote

__all__ = ["DaemonOptions", "run"]

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 10.0
"""Seconds for running calls when the daemon stops; the unit's TimeoutStopSec is longer."""
MESSAGE_BYTES_MAX: Final = 17 * 1024 * 1024
"""Bytes of a CallTool request with its arguments; messages of Attach are at most 64 KiB."""
IDLE_CHECKS: Final = 10
"""Checks for open sessions within the idle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """Command-line options of the daemon."""

    socket: str
    state_directory: str
    config_paths: tuple[str, ...] | None = None  # None: those of the user
    only: tuple[str, ...] = ()  # tool files; empty: all that the sources have
    tests: bool = False  # whether calls run the tests of tools in place of the tools
    idle_exit_seconds: float | None = None
    private: bool = False  # ends with its stdin
    drain_seconds: float = DRAIN_SECONDS


class Daemon(Machine[DaemonState, DaemonEvent]):
    """The parts of a running daemon, as the services, sessions and calls use them."""

    def __init__(
        self,
        options: DaemonOptions,
        runtime_directory: RuntimeDirectory,
        cgroups: CgroupTree,
        zygote: LaunchedZygote,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.options = options
        self.socket = runtime_directory.socket
        super().__init__(DAEMON, DaemonState.STARTING)
        self.tasks = tasks
        self.started_at = time.time()
        self.environment: Mapping[str, str] = dict(os.environ)
        self.logbook = EventLog()
        self.happenings: Broadcast[OperatorEvent] = Broadcast()
        self.recent = CallHistory()
        self._interceptor = TokenInterceptor(runtime_directory)
        self.config = self._load_config()
        self._temporary_directories = TemporaryDirectories(
            os.path.join(options.state_directory, "scratch"), tasks
        )
        self.ruleset = Ruleset(
            self.config, self._host_paths(HostCapabilities())
        )  # until the host has been examined
        self.groups = cgroups
        self._zygote = Zygote(sys.executable, _log_zygote, cgroups, zygote)
        # By what the cells are going to be, and whether they use the network of the host.
        self._preforks: dict[tuple[Enclosure, bool], PreforkedCells] = {}
        self._stopping = asyncio.Event()
        self._environments = Environments(
            os.path.join(options.state_directory, "environments"),
            self.environment,
            uv=lambda: self.config.environments.uv or "",
            source_builds=lambda: self.config.environments.source_builds,
        )
        self.store = Store(os.path.join(options.state_directory, "toolcell.sqlite"))
        self.kept = Kept(
            options.state_directory,
            self.store,
            in_use=self._places_in_use,
            remove=remove_tree,
            tidy=self._tidy_kept,
        )
        self.packages = CellPackages(
            self._environments,
            self.kept,
            directory=lambda: self.ruleset.host_paths.packages,
            tell=self._tell_preparing,
        )
        daemon = self.config.daemon
        self.pool = Pool(
            self._prefork_for,
            tasks,
            workers_max=daemon.workers,
            idle_seconds=daemon.worker_idle_seconds,
            grace_seconds=daemon.abort_grace_seconds,
            load_seconds=daemon.load_timeout_seconds,
            on_change=self._worker_changed,
            on_shut_out=self._shut_out,
            make_worker=self.packages.make_worker,
        )
        self.installations = Installations(
            lambda: self.ruleset.host_paths, self._prefork_for, self._worker_changed
        )
        spill = self.config.spill
        self.spills = SpillStore(
            os.path.join(options.state_directory, "outputs"),
            self.store,
            bytes_per_call=spill.bytes_per_call,
            quota_bytes=spill.quota_bytes,
            retention_seconds=spill.retention_seconds,
        )
        self.catalogs = CatalogRegistry(
            lambda: self.config,
            self._describe,
            self.store,
            is_trusted=lambda: self.ruleset.is_trusted,
            define=Definitions(self.pool, lambda: self.ruleset).changed,
        )
        self.watch = Watch(
            lambda directory: sources_of(self.config, directory),
            self.catalogs.read,
            self.catalogs.described,
            tasks,
        )
        self.projects = ProjectWatches(
            self._find_project,
            self.pool.is_writing,
            self.pool.has_writers,
            lambda directory, now: self.pool.retire_unlike(directory, {*now.held, *now.protected}),
        )
        self.sessions = Sessions(self)
        self.limit_monitor = LimitMonitor(
            lambda: [call for session in self.sessions.all for call in session.calls.values()], tasks
        )

    def _find_project(self, directory: str) -> Project:
        return self.ruleset.find_project(directory)

    def _host_paths(self, host: HostCapabilities) -> HostPaths:
        """Return the host's facts on which permits depend."""
        kept = [self.options.state_directory, os.path.dirname(self.socket)]
        kept += [os.path.dirname(path) for path in self.options.config_paths or _paths.config_paths()]
        hidden = tuple(place for place in map(os.path.realpath, kept) if place != "/")
        packages = os.path.join(os.path.realpath(self.options.state_directory), "packages")
        return HostPaths(host, os.path.expanduser("~"), hidden, self.environment, packages)

    async def trust(self, trusted: Trusted) -> bool:
        """Trust a project from the next call on. Return whether the decision was stored."""
        self.ruleset = replace(self.ruleset, trusts=self.ruleset.trusts.beside(trusted))
        return await trust.keep(self.store, trusted)

    async def distrust(self, directory: str) -> bool:
        """Revoke the trust in a project. Return whether the decision was stored."""
        self.ruleset = replace(self.ruleset, trusts=self.ruleset.trusts.without(directory))
        return await trust.forget(self.store, directory)

    @property
    def cells_ready(self) -> int:
        """The number of preforked cells that are ready."""
        return sum(prefork.ready for prefork in self._preforks.values())

    @property
    def kill_method(self) -> str:
        """How cells are killed on this host: "cgroup", "landlock" or "children"."""
        if self.groups.base:
            return "cgroup"
        return "landlock" if linux.landlock_abi() >= linux.LANDLOCK_ABI_SIGNAL else "children"

    # What the parts need

    def is_operator(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Whether the caller sent the operator's token."""
        return self._interceptor.is_operator(context)

    def find_call(self, call_id: str) -> Call | None:
        """Return the running call with this id, of any session, or None."""
        return self.sessions.call(call_id)

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Add a line of a tool to the event log."""
        self.logbook.write(LogLine(time.time(), source, level, text, tool, call_id))

    def happened(self, what: str, *, session_id: str = "", call: Call | None = None) -> None:
        """Publish an event to the operators that watch."""
        if not self.happenings.readers:
            return
        message = ""
        if call is not None and call.outcome is not None:
            message = call.outcome.kind.value + (f" ({call.outcome.cause})" if call.outcome.cause else "")
        self.happenings.publish(
            OperatorEvent(
                what,
                session_id=session_id,
                call_id=call.id if call is not None else "",
                tool=call.request.tool if call is not None else "",
                worker_id=call.run.worker.id if call is not None and call.run is not None else "",
                message=message,
            )
        )

    def _worker_changed(self, worker: Worker) -> None:
        if worker.state is WorkerState.DEAD:
            self.projects.after_exit(worker)
            self.sessions.on_worker_dead(worker)
            self.happenings.publish(
                OperatorEvent("worker.dead", worker_id=worker.id, message=worker.spec.file.path)
            )
        elif worker.state is WorkerState.STARTING:
            self.limit_monitor.watch(worker)
        elif worker.state is WorkerState.STOPPING:
            self.projects.before_exit(worker)
        elif worker.state is WorkerState.IDLE and not worker.calls:
            self.happenings.publish(
                OperatorEvent("worker.started", worker_id=worker.id, message=worker.spec.file.path)
            )

    def _shut_out(self, held: Quarantined) -> None:
        logger.warning("%s is in quarantine: %s.", held.path, held)
        self.happenings.publish(
            OperatorEvent("tool.quarantined", tool=held.stem, message=f"{held.path}: {held}")
        )

    def _prefork_for(self, spec: CellSpec) -> PreforkedCells:
        enclosure = spec.policy.enclosure
        return self._prefork_of(
            enclosure, host_network=enclosure == "strict" and spec.policy.network == "open"
        )

    def _prefork_of(self, enclosure: Enclosure, *, host_network: bool = False) -> PreforkedCells:
        key = enclosure, host_network
        if key not in self._preforks:
            self._preforks[key] = PreforkedCells(
                self._zygote,
                self.tasks,
                self._temporary_directories,
                enclosure=enclosure,
                host_network=host_network,
            )
        return self._preforks[key]

    def _places_in_use(self) -> list[Place]:
        return [place for worker in self.pool.workers for place in self.packages.places(worker.spec)]

    async def _tidy_kept(self) -> None:
        await self._environments.tidy()
        self.ruleset = replace(self.ruleset)  # permits that were decided before name what was removed

    async def install(self, manifest: Manifest, lock: Lock, manager: Manager) -> None:
        """Install packages, and note who asked for them. Raises `PackagesError`."""
        await self.installations.install(manifest, lock, manager)
        self.kept.used(("packages", manifest.key(lock)), manifest.directory)

    async def look_again(self) -> list[Catalog]:
        """Decide anew what cells get after packages were installed, and describe what could not be described without them."""
        self.ruleset = replace(self.ruleset)  # permits that were decided before name no packages
        return await self.catalogs.refresh_all(wait_seconds=LOOK_SECONDS_MAX)

    def _tell_preparing(self, path: str, text: str) -> None:
        for session in list(self.sessions.all):
            session.prepare(path, text)

    async def _describe(self, file: ToolFile) -> Description:
        try:
            spec = await asyncio.to_thread(self.ruleset.describing, file)
        except Refusal as refusal:
            return Description(broken=Broken("setup", refusal.message))
        description = await self.pool.describe(spec)
        broken = description.broken
        if broken is not None and broken.missing_module:
            remedy = self.ruleset.remedy(file, broken.missing_module, spec.interpreter)
            description = replace(description, broken=replace(broken, remedy=remedy))
        return description

    async def _load_hooks(self, config: Config) -> tuple[Hook, ...]:
        """Read the files of the hooks and see which functions they have."""
        loaded: list[Hook] = []
        for name, section, file in await asyncio.to_thread(lambda: list(find_hooks(config))):
            if isinstance(file, Problem):
                hook = Hook(name, section, None, problem=f"{file.path}: {file.message}")
            else:
                hook = hook_of(name, section, file, await self._describe(file))
            if hook.problem:
                logger.warning(
                    "The hook %s cannot be used, and its tools are refused: %s", name, hook.problem
                )
            loaded.append(hook)
        return tuple(loaded)

    def _load_config(self) -> Config:
        paths = self.options.config_paths
        loaded = load(paths, required=paths is not None)
        return replace(loaded, only=self.options.only, tests=self.options.tests)

    async def reload(self) -> tuple[int, int, list[Any]]:
        """Read the configuration and rescan all directories. Raises `ConfigError` and changes nothing then."""
        self.config = await asyncio.to_thread(self._load_config)
        trusts = await trust.recall(self.store)  # another daemon of this user may have been told of more
        hooks = await self._load_hooks(self.config)
        self.ruleset = replace(self.ruleset, config=self.config, trusts=trusts, hooks=hooks)
        self.sessions.retention.limits = self.config.daemon
        self.pool.workers_max = self.config.daemon.workers
        self.pool.keep_idle(self.config.daemon.worker_idle_seconds)
        self.pool.grace_seconds = self.config.daemon.abort_grace_seconds
        self.pool.load_seconds = self.config.daemon.load_timeout_seconds
        self.watch.renew()
        catalogs = await self.catalogs.refresh_all()
        self.happenings.publish(OperatorEvent("config.reloaded"))
        problems = [problem for catalog in catalogs for problem in catalog.problems]
        return len(catalogs), sum(len(catalog.tools) for catalog in catalogs), problems

    # Its life

    async def serve(self, on_serving: Callable[[], None]) -> None:
        """Bind, serve until `stop`, then drain. `on_serving` is called when the socket is bound."""
        await self.store.start()
        await self.spills.start()
        await self._temporary_directories.start()
        sweeping = [
            self.tasks.create_task(self.spills.sweep_for_ever()),
            self.tasks.create_task(self.kept.sweep_for_ever(lambda: self.config.environments.keep_seconds)),
        ]
        async with self._zygotes(), self.catalogs:
            self.ruleset = replace(
                self.ruleset,
                host_paths=self._host_paths(
                    await probe_host(self._prefork_for, self._temporary_directories.place)
                ),
                trusts=await trust.recall(self.store),
            )
            self.ruleset = replace(self.ruleset, hooks=await self._load_hooks(self.config))
            server = grpc.aio.server(interceptors=[self._interceptor, Parser()], options=SERVER_OPTIONS)
            health = HealthServicer()
            toolcell_pb2_grpc.add_ToolCellServicer_to_server(ToolCell(self), server)
            operator_pb2_grpc.add_OperatorServicer_to_server(Operator(self), server)
            health_pb2_grpc.add_HealthServicer_to_server(health, server)
            names = [
                toolcell_pb2.DESCRIPTOR.services_by_name["ToolCell"].full_name,
                operator_pb2.DESCRIPTOR.services_by_name["Operator"].full_name,
            ]
            reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server)
            server.add_insecure_port(f"unix:{self.socket}")
            await server.start()
            for name in ("", *names):
                health.set(name, health_pb2.HealthCheckResponse.SERVING)
            # What is alive now stays alive: a full collection, which stops every call, need not look at it.
            gc.collect()
            gc.freeze()
            self.fire(DaemonEvent.BOUND)
            notify_systemd("READY=1", f"STATUS=Serving {self.socket}")
            on_serving()
            logger.info("toolcelld %s serves %s", toolcelld.version(), self.socket)
            watching = self.tasks.create_task(self._stop_when_idle())
            await self._stopping.wait()
            watching.cancel()
            self.fire(DaemonEvent.DRAIN)
            notify_systemd("STOPPING=1", "STATUS=Draining")
            for name in ("", *names):
                health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
            await self.sessions.drain(0 if self.options.private else self.options.drain_seconds)
            await server.stop(grace=1)
            await self.pool.aclose()
            self.limit_monitor.close()
        for task in sweeping:
            task.cancel()
        await self.spills.aclose()
        await self.store.aclose()
        self.fire(DaemonEvent.GONE)

    @contextlib.asynccontextmanager
    async def _zygotes(self) -> AsyncGenerator[None]:
        """Prefork cells for the own interpreter; on exit end all unused cells and all zygotes."""
        self._prefork_of("baseline").prepare()
        try:
            yield
        finally:
            for prefork in self._preforks.values():
                await prefork.aclose()
            await self._environments.aclose()
            await self._zygote.aclose()
            self.groups.close()

    def stop(self, why: str) -> None:
        """Begin to drain. Idempotent."""
        if not self._stopping.is_set():
            logger.info("Stopping: %s.", why)
            self._stopping.set()

    async def _stop_when_idle(self) -> None:
        seconds = self.options.idle_exit_seconds
        if seconds is None:
            return
        quiet = 0
        while quiet < IDLE_CHECKS:
            await asyncio.sleep(seconds / IDLE_CHECKS)
            quiet = 0 if self.sessions.all else quiet + 1
        self.stop(f"idle for {seconds:g} s")


SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    # A client that is stopped or debugged is no dead client; on a unix socket the kernel tells us of the dead.
    ("grpc.keepalive_time_ms", 2**31 - 1),
)


async def run(
    options: DaemonOptions,
    runtime_directory: RuntimeDirectory,
    cgroups: CgroupTree,
    zygote: LaunchedZygote,
    on_serving: Callable[[], None],
) -> None:
    """Run a daemon until it is told to stop.

    Args:
        options: The command-line options.
        runtime_directory: Its directory, locked.
        cgroups: The cgroups for its cells, claimed before the zygote was launched, which stays where it was started.
        zygote: The zygote of this interpreter. The caller closes it afterwards.
        on_serving: Called when the socket answers.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        daemon = Daemon(options, runtime_directory, cgroups, zygote, tasks)
        handler = EventLogHandler(daemon.logbook, loop)
        logging.getLogger().addHandler(handler)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, _reload_soon, daemon)
        if options.private:
            loop.add_reader(0, _watch_owner, daemon)
        try:
            await daemon.serve(on_serving)
        finally:
            logging.getLogger().removeHandler(handler)
            if options.private:
                loop.remove_reader(0)


def _log_zygote(line: str) -> None:
    logger.warning("%s: %s", sys.executable, line)


def _reload_soon(daemon: Daemon) -> None:
    daemon.tasks.create_task(_reload(daemon))


async def _reload(daemon: Daemon) -> None:
    try:
        await daemon.reload()
    except ConfigError as error:
        logger.warning("The configuration stays as it was: %s", error)


def _watch_owner(daemon: Daemon) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        daemon.stop("its owner is gone")


def notify_systemd(*lines: str) -> None:
    """Notify the service manager, if there is one; see sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager,
        contextlib.suppress(OSError),
    ):
        manager.sendto("\n".join(lines).encode(), address)
