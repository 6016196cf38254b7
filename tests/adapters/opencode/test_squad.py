"""Work is given to sessions of OpenCode by the Squad pack."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.adapters.kinds import CHARTER, CUT, aborted
from tests.adapters.opencode.serve import OpenCode
from tests.adapters.opencode.test_kinds import opencode
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

__all__ = ["opencode"]

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_a_session_has_the_charter_and_its_answer_comes_back(
    kinds: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as stay:
        routed = Use("squad_route", {"targetAgent": "hockney", "task": "Write a test."})
        script = opencode.model.script
        script.turns += [Turn(uses=(routed,)), Turn("I wrote it.", to="You are hockney"), Turn("done")]
        await stay.turn()
        assert stay.shown(routed) == ["I wrote it."]
        assert any(CHARTER in json.dumps(request["messages"]) for request in script.requests)
        (line,) = await stay.use(Use("squad_status"))
        assert "- **hockney** [idle] session=" in line
        (long,) = await stay.use(Use("squad_skill", {"action": "read", "skillName": "long"}))
        assert CUT in long


async def test_who_is_aborted_aborts_the_session_it_waits_for(
    kinds: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as stay, asyncio.TaskGroup() as turns:

        async def begin() -> None:
            routed = Use("squad_route", {"targetAgent": "hockney", "task": "Wait."})
            waits = Turn(uses=(Use("decorated_wait"),), to="You are hockney")
            opencode.model.script.turns += [Turn(uses=(routed,)), waits]
            turns.create_task(stay.turn())

        await aborted(kinds, "decorated_wait", begin, stay.abort)
