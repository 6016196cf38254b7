"""What happens to a session of OpenCode's, told to the tools."""

from __future__ import annotations

from typing import Any

import pytest
from tests.adapters.conftest import HEARS, heard
from tests.adapters.openai import MODEL
from tests.adapters.opencode.serve import OpenCode
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def config(kit: RunningDaemon) -> dict[str, Any]:
    """The plugin, and a tool that hears."""
    kit.tool("hears", HEARS)
    return {"plugin": [plugin_entry(socket=kit.socket, start=False)]}


async def test_a_new_session_and_a_compaction_are_told(kit: RunningDaemon, opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        opencode.model.script.turns += [Turn("Once upon a time.")]
        await stay.turn()
        opencode.model.script.turns += [Turn("A tale.")]
        which = {"providerID": "test", "modelID": MODEL}
        (await stay.client.post(f"/session/{stay.id}/summarize", json=which)).raise_for_status()
        told = await heard(kit.project, "start", "switch", "auto_compaction_end")
        assert told["switch"] == told["auto_compaction_end"] == [{}, stay.id]
