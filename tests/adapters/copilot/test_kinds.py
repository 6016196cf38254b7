"""Copilot calls tools of every kind, aborts them, and reads their outputs cut."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from copilot.session_events import SessionEvent, SessionInfoData
from tests.adapters.copilot.conftest import Start
from tests.adapters.kinds import CONTEXTS, CUT, KINDS, LINES, NAME, STEP, WHO, aborted, assert_told
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_tools_of_every_kind_are_called_cut_and_aborted(kinds: RunningDaemon, start: Start) -> None:
    events: list[SessionEvent] = []

    def respond(request: Any, _: object) -> Any:
        return {"answer": NAME if request["question"] == f"served_asks: {WHO}" else "", "wasFreeform": True}

    async with start(kinds, on_event=events.append, on_user_input_request=respond) as copilot:
        assert await copilot.use(Use("served_steps")) == ["stepped"]
        assert await copilot.use(Use("served_asks")) == [f"accept {NAME}"]
        lines = [event.data.message for event in events if isinstance(event.data, SessionInfoData)]
        assert f"served_steps: 2/3 {STEP}" in lines
        said = await copilot.use(*(Use(kind.say, {"text": f"ü {kind.name}"}) for kind in KINDS))
        assert said == [f"ü {kind.name}" for kind in KINDS]
        for long in await copilot.use(*(Use(kind.lines, {"count": LINES}) for kind in KINDS)):
            assert CUT in long

        for kind in KINDS:
            use = Use(kind.wait)
            await aborted(kinds, kind.wait, partial(copilot.begin, use), copilot.session.abort)


async def test_tools_in_typescript_are_told_the_same_of_their_call_as_those_in_python(
    kinds: RunningDaemon, start: Start
) -> None:
    async with start(kinds) as copilot:
        assert_told(kinds, await copilot.use(*map(Use, CONTEXTS)), agent="main")
