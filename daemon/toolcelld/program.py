"""`toolcelld`: arguments and exit codes of the daemon, and the order of its start.

The zygote takes as long to import its modules as the daemon, so it is launched before the daemon imports gRPC; before
that come only the lock, so that there is one daemon, and the control group, because a process stays where it started.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import toolcelld
from toolcell import _paths
from toolcell._owners import walk
from toolcell._printable import printable
from toolcell._units import parse_seconds
from toolcelld import linux
from toolcelld.cell.cgroup import CgroupTree
from toolcelld.detach import detached
from toolcelld.pollers import older_pollers
from toolcelld.runtime_directory import AccessError, AlreadyRunning, RuntimeDirectory
from toolcelld.systemd.activation import PassedError, dismiss, passed
from toolcelld.worker.zygote.launch import launch

if TYPE_CHECKING:
    import asyncio

EXIT_CONFIG: Final = 78  # EX_CONFIG of <sysexits.h>
EXIT_UNAVAILABLE: Final = 69  # EX_UNAVAILABLE


def main() -> None:
    """Serve until told to stop. Exits 0 when another daemon serves already: it is as good."""
    arguments = _parser().parse_args()
    with detached() if arguments.detach else contextlib.nullcontext(lambda: None) as on_serving:
        socket = os.path.abspath(arguments.socket or _paths.socket_path())
        try:
            listener = passed(os.environ, os.getpid(), socket)
        except PassedError as error:
            sys.exit(_report(error, EXIT_UNAVAILABLE))
        with listener or contextlib.nullcontext():
            try:
                _serve(arguments, RuntimeDirectory(socket, listener), on_serving)
            except SystemExit:
                if listener is not None:
                    dismiss(listener)
                raise


def _serve(
    arguments: argparse.Namespace, runtime_directory: RuntimeDirectory, on_serving: Callable[[], None]
) -> None:
    umask = os.umask(0o077)  # that of the user is for what tools make
    state = os.path.abspath(arguments.state or _paths.state_directory())
    try:
        os.makedirs(os.path.join(state, "scratch"), mode=0o700, exist_ok=True)
        os.listdir(state)
        if not os.access(state, os.W_OK):  # also where it is mounted read-only
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if fault := walk(os.path.realpath(state))[-1].fault_within:  # it has who is trusted with what
            raise OSError(errno.EPERM, f"{fault} (chmod 700)")
    except OSError as error:
        mended = "name another with --state or XDG_STATE_HOME"
        message = f"the state directory {state} cannot be used: {error.strerror}; {mended}"
        sys.exit(_report(OSError(message), EXIT_UNAVAILABLE))
    try:
        runtime_directory.take()
    except AlreadyRunning as other:
        print(other, file=sys.stderr)
        sys.exit(0)
    except AccessError as error:
        sys.exit(_report(error, EXIT_UNAVAILABLE))
    try:
        _run(arguments, runtime_directory, state, umask, on_serving)
    finally:
        runtime_directory.leave()


def _run(
    arguments: argparse.Namespace,
    runtime_directory: RuntimeDirectory,
    state: str,
    umask: int,
    on_serving: Callable[[], None],
) -> None:
    linux.set_name("toolcelld")
    linux.set_dumpable(False)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a cell takes nine descriptors, a session two
    linux.schedule_ahead(session=arguments.detach or os.getsid(0) == os.getpid())
    cgroups = CgroupTree.claim()
    try:
        launched = launch(sys.executable)
    except OSError as error:
        message = f"{sys.executable} cannot be started: {error.strerror}"
        sys.exit(_report(OSError(message), EXIT_UNAVAILABLE))
    mistake: BaseException | None = None
    with contextlib.closing(launched):
        import asyncio

        _log_to_stderr(verbose=arguments.verbose)
        with older_pollers():
            from toolcelld.config.last_good import advice
            from toolcelld.config.mistakes import ConfigError
            from toolcelld.daemon import DaemonOptions
            from toolcelld.server import run

        options = DaemonOptions(
            socket=runtime_directory.socket,
            state_directory=state,
            config_paths=(arguments.config,) if arguments.config else None,
            last_good=arguments.last_good,
            only=tuple(arguments.only),
            tests=arguments.tests,
            idle_exit_seconds=arguments.idle_exit,
            private=arguments.private,
            drain_seconds=arguments.drain,
            listen=arguments.listen,
            node=arguments.node,
            confined=arguments.confined,
            life_line=arguments.private or arguments.life_line,
            invite=arguments.invite or "",
            umask=umask,
        )
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(run(options, runtime_directory, cgroups, launched, on_serving))
        except* ConfigError as group:
            mistake = group  # an exit from within here becomes part of a group itself in early 3.11
            while isinstance(mistake, BaseExceptionGroup):
                mistake = mistake.exceptions[0]
    if mistake is not None:
        way_out = "" if arguments.last_good or arguments.config else advice(state)
        sys.exit(_report(mistake, EXIT_CONFIG, way_out))


def _log_to_stderr(*, verbose: bool) -> None:
    import logging

    from toolcelld.event_log import OneLineFormatter, log_place, log_uncaught_exceptions
    from toolcelld.systemd.journal import JournalHandler

    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    time = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    handler.setFormatter(OneLineFormatter(f"{time}%(levelname)s %(name)s: %(message)s"))
    if log_place(os.environ) == "journal":
        handler = JournalHandler(handler)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    log_uncaught_exceptions()


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _report(error: BaseException, status: int, way_out: str = "") -> int:
    print(f"toolcelld: {printable(str(error))}", file=sys.stderr)
    if way_out:
        print(way_out, file=sys.stderr)
    return status


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="toolcelld", description="The Toolcell daemon; `toolcell serve` starts it too."
    )
    parser.add_argument(
        "--socket",
        type=os.path.abspath,
        help="where to serve; default $TOOLCELL_SOCKET, else below $XDG_RUNTIME_DIR",
    )
    parser.add_argument(
        "--state",
        type=os.path.abspath,
        help="directory of outputs and records; default below $XDG_STATE_HOME",
    )
    configured = parser.add_mutually_exclusive_group()
    configured.add_argument(
        "--config", type=os.path.abspath, help="a configuration file in place of the user's"
    )
    configured.add_argument(
        "--last-good",
        action="store_true",
        help="start with the configuration as it was when it had no mistake",
    )
    parser.add_argument(
        "--only",
        type=os.path.abspath,
        action="append",
        default=[],
        metavar="FILE",
        help="serve this tool file and no other; may come again",
    )
    parser.add_argument(
        "--tests", action="store_true", help="run the tests of a tool where it is called, in its place"
    )
    parser.add_argument(
        "--idle-exit", type=_seconds, metavar="SECONDS", help="end after so long without a session"
    )
    parser.add_argument(
        "--drain", type=_seconds, default=10.0, metavar="SECONDS", help="what running calls get at the end"
    )
    parser.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="serve clients of other machines too, with mutual TLS; counts before [listen] address",
    )
    parser.add_argument(
        "--node", default="", metavar="NAME", help="the name of this machine; counts before [listen] node"
    )
    parser.add_argument(
        "--invite",
        type=os.path.abspath,
        metavar="DIR",
        help="print a code with which another machine may use the tools of DIR; for --listen",
    )
    parser.add_argument(
        "--confined",
        action="store_true",
        help="give no tool the whole network, or no sandbox: for a machine where another program listens",
    )
    started_by_client = parser.add_mutually_exclusive_group()
    started_by_client.add_argument(
        "--private", action="store_true", help="end with stdin, at once: for a client that owns this daemon"
    )
    started_by_client.add_argument(
        "--life-line",
        action="store_true",
        help="end with stdin, after the drain: for what supervises this daemon",
    )
    started_by_client.add_argument(
        "--detach",
        action="store_true",
        help="leave the caller's process tree, and return when the daemon serves; stdout and stderr stay its log",
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=toolcelld.version())
    return parser
