"""`toolcell bridge`: sessions and calls as JSON lines on stdin and stdout, for adapters in other languages."""

from __future__ import annotations

import asyncio
import signal

from toolcell.adapters.bridge.server import Bridge
from toolcell.adapters.pipes import NoPipe, Pipes
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.directory import unusable
from toolcell.cli._ui.exit_codes import Exit, Misuse

ENDS = (signal.SIGINT, signal.SIGTERM)


async def bridge(context: CommandContext) -> Exit:
    """Serve until the host closes the connection, or until SIGINT or SIGTERM."""
    if (failure := unusable()) is not None:
        raise failure  # sooner than in each session
    loop = asyncio.get_running_loop()
    try:
        async with Pipes("a host") as pipes:
            for number in ENDS:
                loop.add_signal_handler(number, pipes.end)
            await Bridge(pipes, context.socket).serve()
    except NoPipe as error:
        remedy = (
            "Have a program start it: docs/bridge.md says how. To call a tool from a shell: toolcell call"
        )
        raise Misuse(str(error), remedy) from error
    return Exit.OK
