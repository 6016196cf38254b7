"""A project with tools for the tests of the bridge."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from tests.adapters.bridge.host import Host, bridge
from tests.daemons import RunningDaemon

TOOLS = '''
import asyncio, json
from pathlib import Path

from toolcell import Denied, File, ToolContext, ToolError, tool

@tool
def who(context: ToolContext) -> dict[str, object]:
    """Who calls."""
    fields = ("session_id", "message_id", "call_id", "agent", "agent_name", "directory", "traceparent")
    return {name: str(getattr(context, name)) for name in fields}

@tool
async def steps(context: ToolContext) -> str:
    context.metadata("Three rows", rows=3)
    context.progress(1, 2, "half\u2028of it")
    context.update("so far")
    context.log.info("a line")
    return "done"

@tool
async def waits(name: str, context: ToolContext) -> str:
    context.update("here")
    try:
        await asyncio.sleep(600)
    finally:
        Path(context.directory, name).write_text(context.abort.reason)
    return "never"

@tool
async def floods(context: ToolContext) -> str:
    for number in range(6000):
        context.log.info("x" * 2000)
        await asyncio.sleep(0)
    return "y" * 40_000

@tool
async def asks(context: ToolContext) -> str:
    try:
        await context.ask("Really?", permission="edit", patterns=["a.py"], always=["*.py"], details={"n": 1})
    except Denied as denied:
        return f"denied: {denied}"
    return "allowed"

@tool
async def requests(service: str, context: ToolContext) -> str:
    try:
        return json.dumps(await context.request(service, call=1, self=2))
    except ToolError as error:
        return f"failed: {error}"

@tool
async def long() -> str:
    return "z" * 100_000

@tool
def bash() -> str:
    return "mine"

@tool
def figures() -> dict[str, float]:
    return {"a": 1.5}

@tool
def report() -> File:
    return File(data=b"a,b", name="a.csv")
'''


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with these tools."""
    daemon.tool("kit", TOOLS)
    daemon.describe()
    return daemon


@pytest.fixture
async def host(served: RunningDaemon) -> AsyncGenerator[Host]:
    """A bridge for that project, without a session."""
    async with bridge(served) as host:
        yield host
