"""`toolcell mcp`: the tools of a directory for hosts that speak MCP, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal

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
ENDS = (signal.SIGINT, signal.SIGTERM)


async def mcp(context: CommandContext) -> Exit:
    """Serve until the host closes the connection, or until SIGINT or SIGTERM."""
    try:
        from toolcell.adapters.mcp import Bridge, HostContext, NoPipe, Pipes
    except ImportError as error:
        raise MISSING from error
    surroundings = HostContext.of(os.environ, context.directory)
    bridge = Bridge(surroundings, socket=context.socket, daemon="running" if context.socket else "start")
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
