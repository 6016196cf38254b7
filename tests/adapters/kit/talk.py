"""Tools that use what an adapter offers to tools: sessions of its agent."""

import json

from toolcell import ToolContext, tool


@tool
async def talk(service: str, arguments: dict[str, str], context: ToolContext) -> str:
    """Request one of the services of sessions."""
    return json.dumps(await context.request(f"session.{service}", **arguments))


@tool
async def selfish(context: ToolContext) -> str:
    """Ask the very agent that called."""
    return str(await context.request("session.send", prompt="Me?", session_id=context.session_id))


@tool(isolation="session")
async def held(prompt: str, context: ToolContext) -> str:
    """Hold a cell of the session's own while the agent is asked."""
    return str(await context.request("session.send", prompt=prompt))
