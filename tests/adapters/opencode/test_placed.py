"""OpenCode uses the tools of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.adapters.openai import Model
from tests.adapters.opencode.serve import PASSWORD, Stay, serving
from tests.adapters.placed import ADDRESS, joined, stays_at_work
from tests.adapters.script import Use
from tests.process.clusters import Cluster

from toolcell.adapters.opencode import plugin_entry, register

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Session:
    """A session of OpenCode's."""

    stay: Stay

    async def use(self, tool: str, **arguments: str) -> str:
        """Have the model use a tool."""
        (shown,) = await self.stay.use(Use(tool, arguments))
        return shown

    async def abort(self, using: asyncio.Task[str]) -> None:
        """End the turn, as Esc does; the model is not asked what it would have said next."""
        self.stay.opencode.model.script.turns.clear()
        await self.stay.abort()


@pytest.fixture
def placed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with joined(home, monkeypatch) as placed:
        yield placed


async def test_opencode_uses_a_node_aborts_a_call_and_goes_on_when_the_node_is_lost(
    placed: Cluster, home: Path, tmp_path: Path, model: Model
) -> None:
    """By the plugin, whose address is that of the environment; the bridge is told its own."""
    config = {"plugin": [plugin_entry()]}
    with serving(home, tmp_path, model, {"TOOLCELL_SOCKET": ADDRESS}, **config) as opencode:
        below = f"{ADDRESS}docs"
        async with (
            register(opencode.url, directory=tmp_path, password=PASSWORD, socket=below) as registration,
            opencode.stay() as stay,
        ):
            assert registration.tools > 0
            assert (await Session(stay).use("toolcell_t_where")).endswith("/project/s/docs")
        async with opencode.stay() as stay:
            await stays_at_work(placed, Session(stay))
