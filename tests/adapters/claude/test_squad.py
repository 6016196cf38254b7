"""Work is given to sessions of Claude by the Squad pack."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.adapters.claude.conftest import Start
from tests.adapters.claude.test_claude import result, texts, use
from tests.adapters.kinds import CHARTER, CUT, aborted
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_a_session_has_the_charter_and_its_answer_comes_back(
    kinds: RunningDaemon, start: Start
) -> None:
    async with start(kinds) as claude:
        routed = use("squad_route", targetAgent="hockney", task="Write a test.")
        script = claude.model.script
        script.turns += [Turn(uses=(routed,)), Turn("I wrote it.", to="You are hockney"), Turn("done")]
        await claude.turn()
        found = claude.model.result(routed.id)
        assert found is not None
        assert texts(found) == ["I wrote it."]
        assert any(CHARTER in json.dumps(request["messages"]) for request in script.requests)
        (line,) = texts(await result(claude, use("squad_status")))
        assert "- **hockney** [idle] session=" in line
        assert CUT in "".join(
            texts(await result(claude, use("squad_skill", action="read", skillName="long")))
        )


async def test_who_is_aborted_aborts_the_session_it_waits_for(kinds: RunningDaemon, start: Start) -> None:
    async with start(kinds) as claude:
        turns: list[asyncio.Task[object]] = []

        async def begin() -> None:
            routed = use("squad_route", targetAgent="hockney", task="Wait.")
            waits = Turn(uses=(use("decorated_wait"),), to="You are hockney")
            claude.model.script.turns += [Turn(uses=(routed,)), waits]
            await claude.client.query("go")
            turns.append(asyncio.create_task(claude.answer()))

        await aborted(kinds, "decorated_wait", begin, claude.client.interrupt)
        await turns[0]
