"""An MCP host uses the tools of a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from tests.adapters.placed import ADDRESS, joined, stays_at_work
from tests.adapters.test_mcp_bridge import text

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Host:
    """A host, whose model reads what a call returns."""

    client: Client

    async def use(self, tool: str, **arguments: str) -> str:
        """Call a tool."""
        return text(await self.client.call_tool(tool, arguments))

    async def abort(self, using: asyncio.Task[str]) -> None:
        """Cancel the request."""
        using.cancel()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.sampled("era")
async def test_a_host_uses_a_node_aborts_a_call_and_goes_on_when_the_node_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLCELL_SOCKET": ADDRESS}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "toolcell.cli", "mcp"], cwd=tmp_path, env=environment
    )
    with joined(tmp_path, monkeypatch) as placed:
        async with Client(parameters, mode=era) as client:
            assert "t_where" in {tool.name for tool in (await client.list_tools()).tools}
            await stays_at_work(placed, Host(client))
