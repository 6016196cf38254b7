"""`python -m toolcelld_cluster FILE`: Placement, for the nodes of a file, of a Ray cluster or for pods; `toolcell cluster serve`, `up` and `down`
start it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from toolcell._extras import install_command
from toolcell._printable import printable
from toolcelld.detach import detached
from toolcelld_cluster.configuration import ClusterConfiguration, FileError, load
from toolcelld_cluster.keys import keys, stored
from toolcelld_cluster.process import StateLock, end
from toolcelld_cluster.ray.driver_process import DriverLost, DriverRefused, down
from toolcelld_cluster.server import run

EXIT_CONFIG: Final = 78  # EX_CONFIG of <sysexits.h>
LOG: Final = "placement.log"


def main() -> None:
    """Serve until told to stop."""
    arguments = _parser().parse_args()
    os.umask(0o077)
    try:
        configuration = load(arguments.file)
        if arguments.down:
            _down(configuration)
        else:
            with detached() if arguments.detach else contextlib.nullcontext(lambda: None) as on_serving:
                _serve(configuration, arguments, on_serving)
    except ImportError as error:
        if error.name is None or not error.name.startswith("cryptography"):
            raise
        sys.exit(_report(f"certificates need a package that is not installed; {install_command('remote')}"))
    except FileError as error:
        sys.exit(_report(printable(str(error))))


def _serve(
    configuration: ClusterConfiguration, arguments: argparse.Namespace, on_serving: Callable[[], None]
) -> None:
    os.makedirs(configuration.state, mode=0o700, exist_ok=True)
    terminal = _log_to(os.path.join(configuration.state, LOG)) if arguments.detach else None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of each request

    def serving() -> None:
        nonlocal terminal
        if terminal is not None:
            sys.stdout.flush()
            os.dup2(2, 1)
            os.close(terminal)
            terminal = None
        on_serving()

    try:
        with StateLock(configuration.state) if not configuration.nodes else contextlib.nullcontext():
            asyncio.run(run(configuration, arguments.invite, serving))
    except (FileError, ImportError) as error:
        if terminal is None:
            raise
        os.dup2(terminal, 2)
        if isinstance(error, ImportError):
            raise
        sys.exit(_report(printable(str(error))))  # the starter exits with it


def _log_to(path: str) -> int:
    """Have standard error be a file, as what this process starts keeps it; return what it was."""
    terminal = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 2)
    os.close(log)
    return terminal


def _down(configuration: ClusterConfiguration) -> None:
    if configuration.nodes:
        raise FileError(
            "the nodes of the file are started and stopped where they are; end Placement by a signal"
        )
    print("Placement has ended." if end(configuration.state) else "No Placement of this file runs here.")
    if configuration.kubernetes is not None:
        print(f"{len(asyncio.run(_delete_pods(configuration)))} pods are deleted.")
    if configuration.ray is not None:
        try:
            nodes = asyncio.run(down(configuration.ray))
        except (DriverLost, DriverRefused) as error:
            raise FileError(f"the daemons of the nodes may go on: {error}") from error
        print(f"Daemons that have ended: {len(nodes)}.")


async def _delete_pods(configuration: ClusterConfiguration) -> list[str]:
    from toolcelld_cluster.kubernetes.api import ApiFault
    from toolcelld_cluster.kubernetes.engine import delete_all

    assert configuration.kubernetes is not None
    state = configuration.state
    found = await asyncio.to_thread(keys, state, configuration.node, stored(state))
    try:
        return await delete_all(configuration.kubernetes, found)
    except ApiFault as fault:
        raise FileError(f"the pods may go on: {fault}") from fault


def _report(text: str) -> int:
    print(f"toolcelld_cluster: {text}", file=sys.stderr)
    return EXIT_CONFIG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toolcelld_cluster", description="Placement: where sessions run.")
    parser.add_argument("file", help="the nodes and the tenants")
    parser.add_argument(
        "--invite",
        action="append",
        default=[],
        metavar="TENANT",
        help="print a code for a client; may come again",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--detach",
        action="store_true",
        help="return when clients are served; the log is in the state directory",
    )
    how.add_argument(
        "--down", action="store_true", help="end Placement, and the daemons that it has had started"
    )
    return parser


if __name__ == "__main__":
    main()
