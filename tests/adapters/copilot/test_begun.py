"""Tools begin sessions of Copilot, and talk with them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from copilot import CopilotSession
from tests.adapters.conftest import NEW, TALK, without_times
from tests.adapters.copilot.conftest import SECONDS_MAX, Copilot, Start, adapted
from tests.adapters.copilot.test_copilot import until
from tests.adapters.openai import results
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters import sub_sessions
from toolcell.adapters.copilot import sub_sessions as copilot_sub_sessions
from toolcell.client import Kind

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

HELPER = {
    "name": "helper",
    "display_name": "Helper",
    "description": "Helps.",
    "prompt": "You are the one who helps.",
}


@pytest.fixture
def talking(kit: RunningDaemon) -> RunningDaemon:
    kit.tool("talk", TALK)
    return kit


async def talk(copilot: Copilot, service: str, **arguments: str) -> Any:
    """What a tool gets for a request, from an unknown session."""
    outcome = await copilot.adapter.session.call("talk", {"service": service, "arguments": arguments})
    return json.loads(outcome.check().text)


async def refusal(copilot: Copilot, service: str, **arguments: str) -> str:
    """What a tool is told in place of it."""
    outcome = await copilot.adapter.session.call("talk", {"service": service, "arguments": arguments})
    assert outcome.kind is Kind.tool_error
    return outcome.text


async def test_a_session_answers_and_remembers(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        script = copilot.model.script
        script.turns = [Turn("It is blue."), Turn("Blue, I said.")]
        first = await talk(copilot, "send", prompt="What is its colour?")
        assert first["reply"] == "It is blue."
        assert first["session_id"] != copilot.session.session_id
        second = await talk(copilot, "send", prompt="Say that again.", session_id=first["session_id"])
        assert second == {"session_id": first["session_id"], "reply": "Blue, I said."}
        assert "What is its colour?" in json.dumps(script.requests[-1]["messages"])
        (listed,) = (await talk(copilot, "list"))["sessions"]
        assert without_times(listed) == {"session_id": first["session_id"], **NEW, "running": False}


async def test_a_session_that_was_started_goes_on_by_itself(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        copilot.model.script.turns = [Turn(uses=(Use("kit_waits", {"name": "started"}),))]
        started = await talk(copilot, "start", prompt="Wait.")
        await until((talking.project / "started.there").exists)
        (listed,) = (await talk(copilot, "list"))["sessions"]
        assert without_times(listed) == {"session_id": started["session_id"], **NEW, "running": True}
        await copilot.adapter.leave()  # as the end of `connect` does
        assert (talking.project / "started.stopped").exists()
        assert talking.status().calls == 0
        copilot.model.script.turns = [Turn("I was interrupted.")]
        assert (await talk(copilot, "send", prompt="And?", **started))["reply"] == "I was interrupted."


async def test_a_program_that_does_not_abort_holds_nobody_up(
    talking: RunningDaemon, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def abort(session: CopilotSession) -> None:
        raise OSError("not connected")

    async with start(talking) as copilot:
        copilot.model.script.turns = [Turn(uses=(Use("kit_waits", {"name": "alone"}),))]
        await talk(copilot, "start", prompt="Wait.")
        await until((talking.project / "alone.there").exists)
        monkeypatch.setattr(CopilotSession, "abort", abort)
        async with asyncio.timeout(SECONDS_MAX):
            await copilot.adapter.leave()
        assert (talking.project / "alone.stopped").exists()


async def test_a_session_of_another_agent_says_who_it_is(talking: RunningDaemon, start: Start) -> None:
    async with start(talking, custom_agents=[HELPER]) as copilot:
        use = Use("kit_whoami")
        copilot.model.script.uses(use, then="It was me.")
        answered = await talk(copilot, "send", prompt="Who are you?", agent_name="helper")
        assert answered["reply"] == "It was me."
        assert "You are the one who helps." in json.dumps(copilot.model.script.requests[-1]["messages"])
        who = json.loads(copilot.shown(use)[0])
        assert (who["session_id"], who["agent_name"]) == (answered["session_id"], "helper")
        (listed,) = (await talk(copilot, "list"))["sessions"]
        assert listed["agent_name"] == "helper"


async def test_a_tool_of_a_session_talks_with_another(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        asking = Use("talk", {"service": "send", "arguments": {"prompt": "Are you there?"}})
        copilot.model.script.turns = [Turn(uses=(asking,)), Turn("I am."), Turn("It is.")]
        await copilot.turn()
        assert json.loads(copilot.shown(asking)[0])["reply"] == "I am."


async def test_a_call_made_for_another_does_not_wait_for_what_that_holds(
    talking: RunningDaemon, start: Start
) -> None:
    async with start(talking) as copilot:
        outer, inner = Use("talk_held", {"prompt": "outer"}), Use("talk_held", {"prompt": "inner"})
        copilot.model.script.turns = [Turn(uses=(outer,)), Turn(uses=(inner,)), Turn("no"), Turn("done")]
        await copilot.turn()
        found = dict(pair for one in copilot.model.script.requests for pair in results(one).items())
        assert "needs the cell that its ancestor" in found[inner.id]
        assert "'reply': 'no'" in found[outer.id]


async def test_an_abort_reaches_what_another_session_runs(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        asking = Use("talk", {"service": "send", "arguments": {"prompt": "Wait."}})
        copilot.model.script.turns = [Turn(uses=(asking,)), Turn(uses=(Use("kit_waits", {"name": "deep"}),))]
        await copilot.session.send("go")
        await until((talking.project / "deep.there").exists)
        await copilot.session.abort()
        await until((talking.project / "deep.stopped").exists)
        await until(lambda: talking.status().calls == 0)
        copilot.model.script.turns = []
        assert await copilot.use(Use("kit_echo", {"text": "and on"})) == ["and on"]


async def test_a_session_cannot_wait_for_itself(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        use = Use("talk_selfish")
        (shown,) = await copilot.use(use)
        assert "waits for this call" in shown
        copilot.model.script.uses(use, then="It would not.")
        assert (await talk(copilot, "send", prompt="Ask yourself."))["reply"] == "It would not."
        assert "waits for this call" in results(copilot.model.script.requests[-1])[use.id]


async def test_what_is_not_there_is_refused(talking: RunningDaemon, start: Start) -> None:
    async with start(talking) as copilot:
        mine = copilot.session.session_id
        assert f"no session {mine!r} was begun here" in await refusal(
            copilot, "send", prompt="Hm?", session_id=mine
        )
        for service in ("send", "start"):
            assert "'unknown' not found" in await refusal(
                copilot, service, prompt="Hm?", agent_name="unknown"
            )
        assert await talk(copilot, "list") == {"sessions": []}
        assert copilot.model.script.requests == []


async def test_only_so_many_sessions_are_at_work_and_kept(
    talking: RunningDaemon, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(talking) as copilot:
        monkeypatch.setattr(copilot_sub_sessions, "SESSIONS_MAX", 1)
        first, second = await talk(copilot, "send", prompt="a"), await talk(copilot, "send", prompt="b")
        (listed,) = (await talk(copilot, "list"))["sessions"]
        assert listed["session_id"] == second["session_id"] != first["session_id"]
        monkeypatch.setattr(sub_sessions, "TURNS_MAX", 1)
        assert "not found" in await refusal(copilot, "start", prompt="Hm?", agent_name="unknown")
        assert (await talk(copilot, "send", prompt="c"))["reply"]  # a failed request has returned its slot
        monkeypatch.setattr(sub_sessions, "TURNS_MAX", 0)
        assert "0 sessions are at work for tools already" in await refusal(copilot, "start", prompt="Hm?")


async def test_without_a_session_there_are_no_others(talking: RunningDaemon) -> None:
    async with adapted(talking) as adapter, asyncio.timeout(SECONDS_MAX):
        outcome = await adapter.session.call("talk", {"service": "send", "arguments": {"prompt": "Hm?"}})
        assert "does not know how" in outcome.text
