"""For the Claude Agent SDK: the tools of a directory, as a server in the process that runs the agent.

    async with ClaudeAdapter.connect(directory=".") as adapter:
        async with ClaudeSDKClient(options(adapter, ask=dialog)) as client:
            await client.query("Lint what I changed.")
            async for message in client.receive_response():
                adapter.observe(message)

`adapter` is the server and what the agent is told of it; `options` puts it beside what the user has; `origins` finds
out who calls; `conversations` are the sessions that tools begin; `translation` turns our values into what the agent shows its model.
"""

from __future__ import annotations

try:
    import claude_agent_sdk  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import mcp.server.context  # noqa: F401  # pyright: ignore[reportUnusedImport]  # version 1 has no such module
except ImportError as error:
    raise ImportError(
        "toolcell.adapters.claude needs the Claude Agent SDK, and the MCP SDK, version 2 or newer."
        " Install them: pip install 'toolcell[claude]'"
    ) from error

from .adapter import ClaudeAdapter
from .options import options

__all__ = ["ClaudeAdapter", "options"]
