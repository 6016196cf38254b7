"""What happens to a session of Copilot's, told to the tools."""

from __future__ import annotations

import pytest
from tests.adapters.conftest import HEARS, heard
from tests.adapters.copilot.conftest import Start
from tests.adapters.script import Turn, Use
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


ENDS = """
    from toolcell import ToolError, tool

    @tool(ends_turn=True, read_only=True)
    def hand_over(well: bool) -> str:
        if not well:
            raise ToolError("It did not work.")
        return "It is with them now."
    """


async def test_the_success_of_a_tool_that_says_so_ends_the_turn_and_a_failure_does_not(
    kit: RunningDaemon, start: Start
) -> None:
    kit.tool("hand_over", ENDS)
    async with start(kit) as copilot:
        script = copilot.model.script
        script.turns = [Turn(uses=(Use("hand_over", {"well": True}),)), Turn("not reached")]
        await copilot.turn()
        assert [turn.text for turn in script.turns] == ["not reached"]
        script.turns = [Turn(uses=(Use("hand_over", {"well": False}),)), Turn("I see.")]
        await copilot.turn()
        assert script.turns == []
