"""Copilot uses the tools of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.copilot.conftest import Copilot, Run
from tests.adapters.openai import Model
from tests.adapters.placed import ADDRESS, joined, stays_at_work
from tests.adapters.script import Use
from tests.process.clusters import Cluster

from toolcell.adapters.copilot import CopilotAdapter

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Session:
    """A session of Copilot's."""

    copilot: Copilot

    async def use(self, tool: str, **arguments: str) -> str:
        """Have the model use a tool."""
        (shown,) = await self.copilot.use(Use(tool, arguments))
        return shown

    async def abort(self, using: asyncio.Task[str]) -> None:
        """Abort the turn; the model is not asked what it would have said next."""
        self.copilot.model.script.turns.clear()
        await self.copilot.session.abort()


@pytest.fixture
def placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("TOOLCELL_SOCKET", ADDRESS)
    with joined(tmp_path, monkeypatch) as placed:
        yield placed


async def test_copilot_uses_a_node_aborts_a_call_and_goes_on_when_the_node_is_lost(
    placed: Cluster, run: Run, model: Model, options: dict[str, Any], tmp_path: Path
) -> None:
    """Its session works in a directory of its own machine."""
    async with CopilotAdapter.connect() as adapter, run() as client:
        session = await adapter.create_session(client, working_directory=str(tmp_path), **options)
        await stays_at_work(placed, Session(Copilot(client, adapter, session, model)))
