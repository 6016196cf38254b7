"""`toolcelld`: arguments and exit codes of the daemon, and nothing else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

import toolcelld
from toolcell import _paths
from toolcell._own_grpc import older_pollers
from toolcell._printable import printable
from toolcell._units import parse_seconds
from toolcelld.detach import detached
from toolcelld.event_log import OneLineFormatter, log_uncaught_exceptions

__all__ = ["main"]

EXIT_CONFIG: Final = 78  # EX_CONFIG of <sysexits.h>
EXIT_UNAVAILABLE: Final = 69  # EX_UNAVAILABLE


def main() -> None:
    """Serve until told to stop. Exits 0 when another daemon serves already: it is as good."""
    arguments = _parser().parse_args()
    with detached() if arguments.detach else nullcontext(lambda: None) as on_serving:
        _serve(arguments, on_serving)


def _serve(arguments: argparse.Namespace, on_serving: Callable[[], None]) -> None:
    os.umask(0o077)
    _log_to_stderr(logging.DEBUG if arguments.verbose else logging.INFO)
    with older_pollers():
        from toolcelld.config.load import ConfigError
        from toolcelld.rpc.auth import AccessError, AlreadyRunning, RuntimeDirectory
        from toolcelld.server import DaemonOptions, run

    options = DaemonOptions(
        socket=os.path.abspath(arguments.socket or _paths.socket_path()),
        state_directory=os.path.abspath(arguments.state or _paths.state_directory()),
        config_paths=(arguments.config,) if arguments.config else None,
        only=tuple(arguments.only),
        idle_exit_seconds=arguments.idle_exit,
        private=arguments.private,
        drain_seconds=arguments.drain,
    )
    state = options.state_directory
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.listdir(state)
    except OSError as error:
        mended = "name another with --state or XDG_STATE_HOME"
        message = f"the state directory {state} cannot be used: {error.strerror}; {mended}"
        sys.exit(_told(OSError(message), EXIT_UNAVAILABLE))
    runtime_directory = RuntimeDirectory(options.socket)
    try:
        runtime_directory.take()
    except AlreadyRunning:
        print(f"Another daemon serves {options.socket} already.", file=sys.stderr)
        return
    except AccessError as error:
        sys.exit(_told(error, EXIT_UNAVAILABLE))
    mistake: BaseException | None = None
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(run(options, runtime_directory, on_serving))
    except* ConfigError as group:
        mistake = group.exceptions[0]  # an exit from within here becomes part of a group itself in early 3.11
    finally:
        runtime_directory.leave()
    if mistake is not None:
        sys.exit(_told(mistake, EXIT_CONFIG))


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    time = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    handler.setFormatter(OneLineFormatter(f"{time}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    log_uncaught_exceptions()


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _told(error: BaseException, status: int) -> int:
    print(f"toolcelld: {printable(str(error))}", file=sys.stderr)
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
    parser.add_argument("--config", type=os.path.abspath, help="a configuration file in place of the user's")
    parser.add_argument(
        "--only",
        type=os.path.abspath,
        action="append",
        default=[],
        metavar="FILE",
        help="serve this tool file and no other; may come again",
    )
    parser.add_argument(
        "--idle-exit", type=_seconds, metavar="SECONDS", help="end after so long without a session"
    )
    parser.add_argument(
        "--drain", type=_seconds, default=10.0, metavar="SECONDS", help="what running calls get at the end"
    )
    started_by_client = parser.add_mutually_exclusive_group()
    started_by_client.add_argument(
        "--private", action="store_true", help="end with stdin: for a client that owns this daemon"
    )
    started_by_client.add_argument(
        "--detach",
        action="store_true",
        help="leave the caller's process tree, and return when the daemon serves; stdout and stderr stay its log",
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=toolcelld.version())
    return parser


if __name__ == "__main__":
    main()
