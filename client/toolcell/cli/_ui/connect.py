"""The daemon that a command talks to: the one that runs, else where that makes sense a private one.

A private daemon ends with the command. It is also the way to a tool file that lies anywhere: it is told to look at
that file alone. A source in a temporary configuration would not do, because whatever else lies in the file's directory
would be loaded too, and loading is running; nor would a link in a temporary directory, because the file's `__file__`
and the modules beside it would be others.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcell import _paths
from toolcell._paths import SCRIPTS

from .exit_codes import Exit, Failure

if TYPE_CHECKING:
    from toolcell.client._launch.daemon import Daemon
    from toolcell.client._transport.operator import Operator

__all__ = ["CommandContext", "daemon", "operator", "tool_file"]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What every command gets: the options that all commands share."""

    socket: str | None = None
    directory: str | None = None  # where -C led to; the command stands there already
    as_json: bool = False
    quiet: bool = False


@asynccontextmanager
async def daemon(
    context: CommandContext,
    *,
    private: bool = False,
    shared: bool = False,
    only: Sequence[str] = (),
    tests: bool = False,
) -> AsyncGenerator[Daemon]:
    """The user's daemon if it runs, else a private one, or with `shared` the user's.

    For files of their own, and for `tests`, always a private one: it is told what it is for when it starts.
    """
    from toolcell.client._launch.daemon import Private, find

    running = find(context.socket, "running")
    if (
        not private
        and not only
        and not tests
        and (context.socket is not None or _paths.answers(running.socket))
    ):
        refuse_stale(running.socket)
        yield running
        return
    if shared:
        started = find(None, "start")
        await started.ready()
        yield started
        return
    options = [option for path in only for option in ("--only", path)]
    own = Private(*options, *(("--tests",) if tests else ()))
    try:
        await own.ready()
        yield own
    finally:
        await own.end()


@asynccontextmanager
async def operator(context: CommandContext) -> AsyncGenerator[Operator]:
    """The running daemon, as operators see it. Raises Unavailable."""
    from toolcell.client._launch.daemon import find
    from toolcell.client._transport.operator import operate

    running = find(context.socket, "running")
    refuse_stale(running.socket)
    async with operate(running) as found:
        yield found


def refuse_stale(socket: str) -> None:
    """Raise Failure for a socket that a daemon has left when it was killed."""
    if os.path.exists(socket) and not _paths.answers(socket):
        message = f"No daemon runs here: nothing answers on {socket}."
        raise Failure(Exit.UNAVAILABLE, "unavailable", message, "Start the daemon: toolcell serve")


def tool_file(path: str) -> str:
    """The absolute path of a tool file; a Failure where there is none."""
    absolute = os.path.abspath(path)
    name = os.path.basename(absolute)
    if not name.endswith((".py", ".json", *SCRIPTS)) or name.startswith(("_", ".")):
        raise Failure(
            Exit.USAGE,
            "usage",
            f"{path} is no tool file.",
            "A tool file is NAME.py, NAME.ts, NAME.js or NAME.json, where NAME begins with neither _ nor a dot.",
        )
    if not os.path.isfile(absolute):
        raise Failure(Exit.USAGE, "usage", f"There is no file {path}.", f"Write one: toolcell init {path}")
    return absolute
