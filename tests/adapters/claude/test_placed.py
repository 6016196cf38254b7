"""Claude Code uses the tools of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from claude_agent_sdk import ClaudeSDKClient
from tests.adapters.anthropic import Model
from tests.adapters.claude.conftest import Claude, fields
from tests.adapters.claude.test_claude import result, texts, use
from tests.adapters.placed import ADDRESS, joined, stays_at_work
from tests.process.clusters import Cluster

from toolcell.adapters.claude import ClaudeAdapter, options

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Session:
    """A session of Claude Code's."""

    claude: Claude

    async def use(self, tool: str, **arguments: str) -> str:
        """Have the model use a tool."""
        return "".join(texts(await result(self.claude, use(tool, **arguments))))

    async def abort(self, using: asyncio.Task[str]) -> None:
        """Interrupt the turn; the model is not asked what it would have said next."""
        self.claude.model.script.turns.clear()
        await self.claude.client.interrupt()


@pytest.fixture
def placed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("TOOLCELL_SOCKET", ADDRESS)
    with joined(home, monkeypatch) as placed:
        yield placed


async def test_claude_uses_a_node_aborts_a_call_and_goes_on_when_the_node_is_lost(
    placed: Cluster, model: Model, tmp_path: Path
) -> None:
    async with (
        ClaudeAdapter.connect() as adapter,
        ClaudeSDKClient(options(adapter, **fields(model, tmp_path))) as client,
    ):
        await stays_at_work(placed, Session(Claude(client, adapter, model)))
