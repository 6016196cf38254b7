"""An MCP host uses the tools of a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from tests.adapters.placed import ADDRESS, VOLUME, joined, stays_at_work
from tests.adapters.test_mcp_bridge import text
from tests.process.clusters import SECONDS_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

TOKEN = "a-token-of-the-tests-0123456789"


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


@contextmanager
def serving(home: Path, *words: str) -> Generator[str]:
    """A command that serves over HTTP until the block ends; its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", *words, "--json", "--token-env", "TOKEN"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TOOLCELL_SOCKET": ADDRESS,
            "TOOLCELL_DIRECTORY": f"{VOLUME}docs",
            "TOKEN": TOKEN,
        },
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert said["directory"] == ADDRESS
            yield said["url"]
        finally:
            process.terminate()


async def test_hosts_and_clients_over_http_use_the_directory_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(tmp_path, monkeypatch), serving(tmp_path, "mcp", "--http", "0") as url:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=SECONDS_MAX) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
        ):
            assert text(await client.call_tool("t_where")).endswith("/project/s/docs")
            with serving(tmp_path, "http", "0") as other:
                answer = await http.post(f"{other}calls", json={"tool": "t_where", "arguments": {}})
    assert answer.json()["content"][0]["text"].endswith("/project/s/docs")
