"""`toolcell mcp`: the tools of a directory for hosts that speak MCP, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import stat
from contextlib import suppress
from typing import Literal

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.options import HttpOptions

__all__ = ["mcp", "mcp_over_http"]

MISSING = Failure(
    Exit.UNAVAILABLE,
    "missing_extra",
    "The MCP SDK, version 2 or newer, is not installed.",
    "Install it: pip install 'toolcell[mcp]'",
)
SDK = ("mcp", "mcp_types")  # version 1 has no second package
ENDS = (signal.SIGINT, signal.SIGTERM)


async def mcp(context: CommandContext) -> Exit:
    """Serve until the host closes the connection, or until SIGINT or SIGTERM."""
    daemon: Literal["running", "start"] = "running" if context.socket else "start"
    if not all(map(importlib.util.find_spec, SDK)):
        raise MISSING
    # The SDK takes as long to import as a daemon to start, and some hosts wait for one second only.
    starting = asyncio.create_task(_start(context.socket, daemon), name="daemon")
    try:
        await asyncio.to_thread(importlib.import_module, "toolcell.adapters.mcp")
    except ImportError as error:
        raise MISSING from error
    finally:
        await starting
    from toolcell.adapters.mcp import Bridge, HostContext, NoPipe, Pipes

    bridge = Bridge(HostContext.of(os.environ, context.directory), socket=context.socket, daemon=daemon)
    loop = asyncio.get_running_loop()
    try:
        async with Pipes() as pipes:
            for number in ENDS:
                loop.add_signal_handler(number, pipes.end)
            await bridge.run(pipes.read, pipes.write)
    except NoPipe as error:
        remedy = (
            "Have a host start it: docs/agents/mcp.md says how. Or serve over HTTP: toolcell mcp --http 8137"
        )
        raise Failure(Exit.USAGE, "usage", str(error), remedy) from error
    return Exit.OK


async def _start(socket: str | None, daemon: Literal["running", "start"]) -> None:
    """Have the daemon started, if there is a host; if it cannot be, the first request of the host is told why."""
    mode = os.fstat(0).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return
    from toolcell.client import Unavailable
    from toolcell.client._launch.daemon import find

    with suppress(Unavailable):
        await find(socket, daemon).ready()


async def mcp_over_http(context: CommandContext, options: HttpOptions) -> Exit:
    """Serve until SIGINT or SIGTERM; then the running calls are aborted."""
    try:
        from toolcell.adapters.mcp import PATH, HttpSessions
        from toolcell.cli._ui.http_server import serve
    except ImportError as error:
        raise MISSING from error
    sessions = HttpSessions(
        os.getcwd(), socket=context.socket, daemon="running" if context.socket else "start"
    )
    return await serve(context, options, sessions, sessions, path=PATH)
