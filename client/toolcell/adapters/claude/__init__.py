"""For the Claude Agent SDK: the tools of a directory, as a server in the process that runs the agent.

    async with ClaudeAdapter.connect(directory=".") as adapter:
        async with ClaudeSDKClient(options(adapter, ask=dialog)) as client:
            await client.query("Lint what I changed.")
            async for message in client.receive_response():
                adapter.observe(message)

`adapter` is the server, `options` adds it to the options of an agent, `callers` finds the use of a tool that a call
belongs to, `program` is the program of Claude Code and its end, `sub_sessions` has the sessions that tools begin, and `convert`
turns our values into those of the SDK.
"""

from __future__ import annotations

try:
    import claude_agent_sdk  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import mcp.server.context  # noqa: F401  # pyright: ignore[reportUnusedImport]  # version 1 has no such module
except ImportError as error:
    from toolcell._extras import install_command

    raise ImportError(
        "toolcell.adapters.claude needs the Claude Agent SDK, and the MCP SDK, version 2 or newer."
        f" Install them: {install_command('claude')}"
    ) from error

from .adapter import ClaudeAdapter
from .options import options

__all__ = ["ClaudeAdapter", "options"]
