"""What happens to a session of Copilot's, told to the tools."""

from __future__ import annotations

import pytest
from tests.adapters.conftest import HEARS, heard
from tests.adapters.copilot.conftest import Start
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_a_compaction_is_told_with_its_session(kit: RunningDaemon, start: Start) -> None:
    kit.tool("hears", HEARS)
    async with start(kit) as copilot:
        copilot.model.script.turns = [Turn("Once upon a time."), Turn("A tale.")]
        await copilot.turn()
        await copilot.session.rpc.history.compact()
        told = await heard(kit.project, "start", "auto_compaction_start", "auto_compaction_end")
        own = copilot.session.session_id
    assert told["auto_compaction_start"][1] == told["auto_compaction_end"][1] == own
    assert told["auto_compaction_end"][0]["success"] is True
    await heard(kit.project, "shutdown")
