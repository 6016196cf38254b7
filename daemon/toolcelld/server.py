"""The gRPC server around a daemon: binds the socket, tells systemd, serves, drains.

One root TaskGroup owns every task that outlives a function. The daemon ends by a signal, by the
end of its owner's pipe (`--private`, `--life-line`), or after being idle for so long (`--idle-exit`); each of
them drains: new sessions and calls are refused, running ones get the time of the drain, then
they are stopped, and when every cell is empty the daemon is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pwd
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

import toolcelld
from toolcell_proto.v1 import operator_pb2_grpc, toolcell_pb2_grpc
from toolcelld import linux
from toolcelld.cell.cgroup import CgroupTree
from toolcelld.cell.processes import processes
from toolcelld.config.mistakes import ConfigError
from toolcelld.daemon import Daemon, DaemonOptions
from toolcelld.event_log import EventLogHandler, FloodFilter
from toolcelld.files import looks
from toolcelld.lifecycle import DaemonEvent
from toolcelld.metrics.server import serving
from toolcelld.remote.certificates import material
from toolcelld.remote.joining import Invitations, invitation
from toolcelld.remote.listener import listening
from toolcelld.rpc.agent_service import ToolCell
from toolcelld.rpc.auth import TokenInterceptor
from toolcelld.rpc.backlog import carried
from toolcelld.rpc.health import SERVICES, Health
from toolcelld.rpc.interceptors import RefusalInterceptor
from toolcelld.rpc.operator_service import Operator
from toolcelld.runtime_directory import RuntimeDirectory
from toolcelld.systemd.service_manager import ServiceManager
from toolcelld.worker.zygote.launch import LaunchedZygote

logger = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 17 * 1024 * 1024
"""Bytes of a CallTool request with its arguments; messages of Attach are at most 64 KiB."""
THREADS: Final = min(32, (os.cpu_count() or 1) + 4)
"""For work that blocks; as many as asyncio would start in time."""
COLLECTED: Final = (20_000, 5, 5)
"""New objects after which the youngest are searched for cycles; with Python's own 700 a call that waits is searched several
times, and a twentieth of the daemon's time goes there. And how many of these searches make one of those that are older, and of
these again one of all: what gRPC keeps of an RPC is in a cycle, and one of a long session is old when it ends."""
LOGGER_OF_GRPC: Final = "grpc._cython.cygrpc"
STREAMS_MAX: Final = 256
"""Of one connection; each session of our own clients has a connection of its own."""
PENDING_MAX: Final = 64 * STREAMS_MAX
"""Requests that the daemon has not taken yet, at some 6 KiB. With more, grpc cancels new ones of every connection; with its
own limit of 1,000 one connection could have those of all others cancelled."""
SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.server.max_pending_requests", PENDING_MAX),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
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
        runtime_directory: Its directory, locked.
        cgroups: The cgroups for its cells, claimed before the zygote was launched, which stays where it was started.
        zygote: The zygote of this interpreter. The caller closes it afterwards.
        on_serving: Called when the socket answers.
    """
    loop = asyncio.get_running_loop()
    loop.set_default_executor(looks.started(ThreadPoolExecutor(THREADS, "toolcell"), THREADS))
    looks.start()
    processes.start_threads()
    async with asyncio.TaskGroup() as tasks:
        daemon = Daemon(options, cgroups, zygote, tasks)
        handler = EventLogHandler(daemon.services.logbook, loop)
        logging.getLogger().addHandler(handler)
        flood = FloodFilter(loop)
        for each in logging.getLogger().handlers:
            each.addFilter(flood)
        logging.getLogger(LOGGER_OF_GRPC).addFilter(_is_no_clients)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, lambda: daemon.services.tasks.create_task(_reload(daemon)))
        # Handled and not ignored, because programs that the daemon starts would inherit that.
        for number in linux.UNUSED_SIGNALS:
            loop.add_signal_handler(number, _note_signal, number)
        if options.life_line:
            loop.add_reader(0, _watch_owner, daemon)
        try:
            with closing(ServiceManager(os.environ, os.getpid())) as manager:
                await _serve(daemon, runtime_directory, manager, on_serving)
        finally:
            for each in logging.getLogger().handlers:
                each.removeFilter(flood)
            logging.getLogger().removeHandler(handler)
            logging.getLogger(LOGGER_OF_GRPC).removeFilter(_is_no_clients)
            if options.life_line:
                loop.remove_reader(0)


def _note_signal(number: int) -> None:
    logger.warning("received signal %d, which has no effect here; SIGTERM stops the daemon", number)


async def _serve(
    daemon: Daemon, directory: RuntimeDirectory, manager: ServiceManager, on_serving: Callable[[], None]
) -> None:
    """Bind, serve until the daemon is to stop, then drain."""
    options, access = daemon.options, TokenInterceptor(directory)
    invites = bool(options.invite)
    listen = await asyncio.to_thread(
        material,
        daemon.config,
        options.listen,
        options.state_directory,
        node=options.node,
        invites=invites,
    )
    invitations = Invitations(listen) if listen is not None and invites else None
    async with daemon.opened():
        server = grpc.aio.server(interceptors=[access, RefusalInterceptor()], options=SERVER_OPTIONS)
        health = Health(daemon.sessions)
        toolcell_pb2_grpc.add_ToolCellServicer_to_server(
            ToolCell(daemon.services, daemon.sessions, access), server
        )
        operator_pb2_grpc.add_OperatorServicer_to_server(Operator(daemon), server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        reflection.enable_server_reflection([*SERVICES, reflection.SERVICE_NAME], server)
        server.add_insecure_port(f"unix:{directory.bound}")
        await server.start()
        async with contextlib.AsyncExitStack() as stack:
            give_back = await stack.enter_async_context(carried(directory))
            if listen is not None:
                address = await stack.enter_async_context(
                    listening(daemon, listen, health, SERVER_OPTIONS, invitations)
                )
                logger.info("Clients of other machines are served on %s, as %s.", address, listen.node)
                if invitations is not None:
                    code = invitations.invite(_user(), options.invite)
                    print(invitation(address, code, options.invite), flush=True)
            await _served(daemon, health, manager, on_serving)
            give_back()
            await server.stop(grace=1)
    daemon.fire(DaemonEvent.GONE)


async def _served(
    daemon: Daemon, health: Health, manager: ServiceManager, on_serving: Callable[[], None]
) -> None:
    """Say that the daemon serves, wait until it is to stop, and drain it."""
    async with serving(daemon):  # who waits for READY finds the metrics as well
        # What is alive now stays alive: a full collection, which stops every call, need not look at it.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        daemon.fire(DaemonEvent.BOUND)
        manager.notify("READY=1", f"STATUS=Serving {daemon.socket}")
        manager.feed_watchdog()
        on_serving()
        logger.info("toolcelld %s serves %s", toolcelld.version(), daemon.socket)
        await daemon.stopped()
        daemon.fire(DaemonEvent.DRAIN)
        manager.notify("STOPPING=1", "STATUS=Draining")
        health.ends = True
        await daemon.sessions.drain(0 if daemon.options.private else daemon.options.drain_seconds)


def _user() -> str:
    """Return the name of this user, or the number of one without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _reload(daemon: Daemon) -> None:
    try:
        await daemon.reload()
    except ConfigError as error:
        logger.warning("The configuration stays as it was: %s", error)


def _is_no_clients(record: logging.LogRecord) -> bool:
    """Whether a record of grpc is about a fault of ours, and not about a client that ended a stream during a write."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


def _watch_owner(daemon: Daemon) -> None:
    try:
        written = os.read(0, 4096)
    except BlockingIOError:
        return
    except OSError:  # a terminal that was closed
        written = b""
    if not written:
        asyncio.get_running_loop().remove_reader(0)
        daemon.stop("its owner is gone")
