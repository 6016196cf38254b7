"""Work is given to sessions of Copilot by the Squad pack."""

from __future__ import annotations

import json

import pytest
from tests.adapters.copilot.conftest import Start
from tests.adapters.kinds import CHARTER, CUT, aborted
from tests.adapters.openai import results
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_a_session_has_the_charter_and_its_answer_comes_back(
    kinds: RunningDaemon, start: Start
) -> None:
    async with start(kinds) as copilot:
        routed = Use("squad_route", {"targetAgent": "hockney", "task": "Write a test."})
        script = copilot.model.script
        script.turns = [Turn(uses=(routed,)), Turn("I wrote it.", to="You are hockney"), Turn("done")]
        await copilot.turn()
        assert results(script.requests[-1])[routed.id] == "I wrote it."
        assert any(CHARTER in json.dumps(request["messages"]) for request in script.requests)
        (line,) = await copilot.use(Use("squad_status"))
        assert "- **hockney** [idle] session=" in line
        (long,) = await copilot.use(Use("squad_skill", {"action": "read", "skillName": "long"}))
        assert CUT in long


async def test_who_is_aborted_aborts_the_session_it_waits_for(kinds: RunningDaemon, start: Start) -> None:
    async with start(kinds) as copilot:

        async def begin() -> None:
            routed = Use("squad_route", {"targetAgent": "hockney", "task": "Wait."})
            waits = Turn(uses=(Use("decorated_wait"),), to="You are hockney")
            copilot.model.script.turns = [Turn(uses=(routed,)), waits]
            await copilot.session.send("go")

        await aborted(kinds, "decorated_wait", begin, copilot.session.abort)
