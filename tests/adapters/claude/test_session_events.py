"""What happens to a session of Claude Code, told to the tools."""

from __future__ import annotations

import pytest
from tests.adapters.claude.conftest import Start
from tests.adapters.conftest import HEARS, heard
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_a_compaction_is_told_with_its_session(kit: RunningDaemon, start: Start) -> None:
    kit.tool("hears", HEARS)
    async with start(kit) as claude:
        claude.model.script.turns += [Turn("Once upon a time.")]
        first = await claude.turn()
        claude.model.script.turns += [Turn("<summary>A tale.</summary>")]
        await claude.turn("/compact")
        told = await heard(kit.project, "start", "auto_compaction_start")
    assert told["auto_compaction_start"] == [{"trigger": "manual"}, getattr(first[-1], "session_id", "")]
    await heard(kit.project, "shutdown")
