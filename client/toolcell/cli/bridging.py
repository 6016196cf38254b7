"""`toolcell mcp`: the tools of a directory for a host that speaks MCP, over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import signal

from .exits import Exit, Failure
from .reach import Invocation

__all__ = ["mcp"]


async def mcp(told: Invocation) -> Exit:
    """Serve until the host closes its end, or somebody sends SIGINT or SIGTERM."""
    try:
        from toolcell.adapters.mcp import Bridge, NoPipe, Pipes, Surroundings
    except ImportError as error:
        raise Failure(
            Exit.UNAVAILABLE,
            "missing_extra",
            "The MCP SDK, version 2 or newer, is not installed.",
            "Install it: pip install 'toolcell[mcp]'",
        ) from error
    surroundings = Surroundings.of(os.environ, told.directory)
    bridge = Bridge(surroundings, socket=told.socket, daemon="running" if told.socket else "start")
    loop = asyncio.get_running_loop()
    try:
        async with Pipes() as pipes:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, pipes.end)
            await bridge.run(pipes.read, pipes.write)
    except NoPipe as error:
        remedy = "Have a host start it: docs/agents/mcp.md says how."
        raise Failure(Exit.USAGE, "usage", str(error), remedy) from error
    return Exit.OK
