"""`toolcelld`: arguments and exit codes of the daemon, and nothing else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from typing import Final

import toolcelld
from toolcell import _paths
from toolcell._units import parse_seconds

__all__ = ["main"]

EXIT_CONFIG: Final = 78  # EX_CONFIG of <sysexits.h>
EXIT_UNAVAILABLE: Final = 69  # EX_UNAVAILABLE


def main() -> None:
    """Serve until told to stop. Exits 0 when another daemon serves already: it is as good."""
    arguments = _parser().parse_args()
    os.umask(0o077)
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.INFO,
        format="%(levelname)s %(name)s: %(message)s"
        if "JOURNAL_STREAM" in os.environ
        else "%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    from toolcelld.config.load import ConfigError
    from toolcelld.rpc.auth import AccessError, AlreadyRunning, RuntimeDirectory
    from toolcelld.server import DaemonOptions, run

    arrangement = DaemonOptions(
        socket=os.path.abspath(arguments.socket or _paths.socket_path()),
        state_directory=os.path.abspath(arguments.state or _paths.state_directory()),
        config_paths=(os.path.abspath(arguments.config),) if arguments.config else None,
        only=tuple(os.path.abspath(path) for path in arguments.only),
        idle_exit_seconds=arguments.idle_exit,
        private=arguments.private,
        drain_seconds=arguments.drain,
    )
    state = arrangement.state_directory
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.listdir(state)
    except OSError as error:
        mended = "name another with --state or XDG_STATE_HOME"
        message = f"the state directory {state} cannot be used: {error.strerror}; {mended}"
        sys.exit(_told(OSError(message), EXIT_UNAVAILABLE))
    premises = RuntimeDirectory(arrangement.socket)
    try:
        premises.take()
    except AlreadyRunning:
        print(f"Another daemon serves {arrangement.socket} already.", file=sys.stderr)
        return
    except AccessError as error:
        sys.exit(_told(error, EXIT_UNAVAILABLE))
    mistake: BaseException | None = None
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(run(arrangement, premises))
    except* ConfigError as group:
        mistake = group.exceptions[0]  # an exit from within here becomes part of a group itself in early 3.11
    finally:
        premises.leave()
    if mistake is not None:
        sys.exit(_told(mistake, EXIT_CONFIG))


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _told(error: BaseException, status: int) -> int:
    print(f"toolcelld: {error}", file=sys.stderr)
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
        "--socket", help="where to serve; default $TOOLCELL_SOCKET, else below $XDG_RUNTIME_DIR"
    )
    parser.add_argument("--state", help="directory of outputs and records; default below $XDG_STATE_HOME")
    parser.add_argument("--config", help="a configuration file in place of the user's")
    parser.add_argument(
        "--only",
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
    parser.add_argument(
        "--private", action="store_true", help="end with stdin: for a client that owns this daemon"
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=toolcelld.version())
    return parser


if __name__ == "__main__":
    main()
