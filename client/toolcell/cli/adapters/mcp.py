"""`toolcell mcp`: the tools of a directory for hosts that speak MCP, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from toolcell._paths import is_elsewhere
from toolcell.adapters.pipes import NoPipe, Pipes
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.directory import served, unusable
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.options import HttpOptions

if TYPE_CHECKING:
    from toolcell.adapters.mcp.stdio.server import Make

ENDS = (signal.SIGINT, signal.SIGTERM)


async def mcp(context: CommandContext, timeout_seconds: float | None) -> Exit:
    """Serve until the host closes the connection, or until SIGINT or SIGTERM."""
    if (failure := unusable()) is not None:
        raise failure  # sooner than in each session
    try:
        from toolcell.adapters.mcp import HostContext, HostLink, StdioServer
    except ImportError as error:
        raise _missing() from error
    if is_elsewhere(context.socket):
        # What the host says of directories is about this machine
        surroundings = HostContext.of({}, served(context.socket))
    else:
        surroundings = HostContext.of(os.environ, context.directory)
        if (failure := unusable(surroundings.directory)) is not None:
            raise failure  # else each request of the host would fail
    link = HostLink(context.socket, "running" if context.socket else "start", timeout_seconds)
    loop = asyncio.get_running_loop()
    try:
        async with Pipes("an MCP host") as pipes:
            for number in ENDS:
                loop.add_signal_handler(number, pipes.end)
            await StdioServer(surroundings, link, pipes).serve(_load)
    except NoPipe as error:
        remedy = (
            "Have a host start it: docs/agents/mcp.md says how. Or serve over HTTP: toolcell mcp --http 8137"
        )
        raise Misuse(str(error), remedy) from error
    return Exit.OK


def _load() -> Make:
    try:
        from toolcell.adapters.mcp import Kernel
    except ImportError as error:
        raise _missing() from error
    return Kernel


async def mcp_over_http(context: CommandContext, options: HttpOptions, timeout_seconds: float | None) -> Exit:
    """Serve until SIGINT or SIGTERM; then the running calls are aborted."""
    if (failure := unusable()) is not None:
        raise failure  # sooner than in each session
    try:
        from toolcell.adapters.mcp import PATH, HttpSessions
        from toolcell.cli.adapters.http_server import serve
    except ImportError as error:
        raise _missing() from error
    sessions = HttpSessions(
        served(context.socket),
        socket=context.socket,
        daemon="running" if context.socket else "start",
        timeout_seconds=timeout_seconds,
    )
    return await serve(context, options, sessions, sessions, path=PATH)


def _missing() -> Failure:
    from toolcell._extras import install_command

    remedy = f"Install it: {install_command('mcp')}"
    return Failure(
        Exit.UNAVAILABLE, "missing_extra", "The MCP SDK, version 2 or newer, is not installed.", remedy
    )
