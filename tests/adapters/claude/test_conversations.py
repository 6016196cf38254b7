"""Tools begin sessions of the agent, and talk with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import AgentDefinition
from tests.adapters.anthropic import Model
from tests.adapters.claude.conftest import Start, adapted, fields
from tests.adapters.claude.test_claude import appears, gone, process_of, result, texts, use
from tests.adapters.conftest import NEW, TALK, without_times
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

from toolcell.adapters import sub_sessions
from toolcell.adapters.claude import ClaudeAdapter, options
from toolcell.client import Kind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HELPER = AgentDefinition(description="Helps.", prompt="You are the one who helps.")


@pytest.fixture
async def adapter(kit: RunningDaemon, home: Path, model: Model) -> AsyncGenerator[ClaudeAdapter]:
    """An adapter with options, and no agent: the tools are called as if there were one."""
    kit.tool("talk", TALK)
    async with adapted(kit) as adapter:
        options(adapter, **fields(model, kit.project, agents={"helper": HELPER}))
        yield adapter


async def talk(adapter: ClaudeAdapter, service: str, **arguments: str) -> Any:
    """What a tool gets for a request."""
    outcome = await adapter.session.call("talk", {"service": service, "arguments": arguments})
    return json.loads(outcome.check().text)


async def refusal(adapter: ClaudeAdapter, service: str, **arguments: str) -> str:
    """What a tool is told in place of it."""
    outcome = await adapter.session.call("talk", {"service": service, "arguments": arguments})
    assert outcome.kind is Kind.tool_error
    return outcome.text


def prompts(request: dict[str, Any]) -> str:
    return json.dumps([message for message in request["messages"] if message["role"] == "user"])


async def test_a_session_answers_and_remembers(adapter: ClaudeAdapter, model: Model) -> None:
    model.script.turns += [Turn("It is blue."), Turn("Blue, I said.")]
    first = await talk(adapter, "send", prompt="What is its colour?")
    assert first["reply"] == "It is blue."
    second = await talk(adapter, "send", prompt="Say that again.", session_id=first["session_id"])
    assert second == {"session_id": first["session_id"], "reply": "Blue, I said."}
    assert "What is its colour?" in prompts(model.script.requests[-1])
    (listed,) = (await talk(adapter, "list"))["sessions"]
    assert without_times(listed) == {"session_id": first["session_id"], **NEW, "running": False}


async def test_a_session_that_was_started_goes_on_by_itself(
    adapter: ClaudeAdapter, model: Model, kit: RunningDaemon
) -> None:
    wanted = use("kit_waits", name="started")
    model.script.turns += [Turn(uses=(wanted,))]
    started = await talk(adapter, "start", prompt="Wait.")
    await appears(kit.project / "started.there")
    process = process_of(kit, wanted)
    (listed,) = (await talk(adapter, "list"))["sessions"]
    assert without_times(listed) == {"session_id": started["session_id"], **NEW, "running": True}
    await adapter.leave()  # as the end of `connect` does
    assert not process.is_running()
    assert (kit.project / "started.stopped").exists()
    assert len(model.script.requests) == 1  # nor did the agent go on to ask what to do about it
    model.script.turns += [Turn("I was interrupted.")]
    assert (await talk(adapter, "send", prompt="And?", **started))["reply"] == "I was interrupted."


async def test_a_session_of_a_sub_agent_says_who_it_is(adapter: ClaudeAdapter, model: Model) -> None:
    wanted = use("kit_whoami")
    model.script.uses(wanted, then="It was me.")
    answered = await talk(adapter, "send", prompt="Who are you?", agent_name="helper")
    assert answered["reply"] == "It was me."
    assert "You are the one who helps." in json.dumps(model.script.requests[-1]["system"])
    found = model.result(wanted.id)
    assert found is not None
    caller = json.loads(texts(found)[0])
    assert (caller["session_id"], caller["agent_name"]) == (answered["session_id"], "helper")
    assert caller["message_id"] == model.message_ids[wanted.id]


async def test_a_tool_of_an_agent_talks_with_another(kit: RunningDaemon, start: Start) -> None:
    kit.tool("talk", TALK)
    async with start(kit) as claude:
        asking = use("talk", service="send", arguments={"prompt": "Are you there?"})
        claude.model.script.turns += [Turn(uses=(asking,)), Turn("I am."), Turn("It is.")]
        said = await claude.turn()
        found = claude.model.result(asking.id)
        assert found is not None
        assert json.loads(texts(found)[0])["reply"] == "I am."
        assert getattr(said[-1], "result", None) == "It is."


async def test_an_interrupt_reaches_what_another_session_runs(kit: RunningDaemon, start: Start) -> None:
    kit.tool("talk", TALK)
    async with start(kit) as claude:
        asking = use("talk", service="send", arguments={"prompt": "Wait."})
        wanted = use("kit_deaf", name="deep")
        claude.model.script.turns += [Turn(uses=(asking,)), Turn(uses=(wanted,))]
        await claude.client.query("go")
        turn = asyncio.create_task(claude.answer())
        await appears(kit.project / "deep.there")
        process = process_of(kit, wanted)
        await claude.client.interrupt()
        await turn
        await gone(process)
        assert len(claude.model.script.requests) == 2
        assert texts(await result(claude, use("kit_echo", text="and on"))) == ["and on"]


async def test_a_session_cannot_wait_for_itself(adapter: ClaudeAdapter, model: Model) -> None:
    wanted = use("talk_selfish")
    model.script.uses(wanted, then="It would not.")
    assert (await talk(adapter, "send", prompt="Ask yourself."))["reply"] == "It would not."
    found = model.result(wanted.id)
    assert found is not None
    assert found["is_error"] is True
    assert "waits for this call" in texts(found)[0]


async def test_what_is_not_there_is_refused(adapter: ClaudeAdapter, model: Model) -> None:
    assert "no session 'x' was begun here" in await refusal(adapter, "send", prompt="Hm?", session_id="x")
    for service in ("send", "start"):
        text = await refusal(adapter, service, prompt="Hm?", agent_name="unknown")
        assert "no agent 'unknown'; there are main, " in text
        assert "helper" in text
    assert await talk(adapter, "list") == {"sessions": []}
    assert model.script.requests == []


async def test_only_so_many_sessions_are_at_work(
    adapter: ClaudeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sub_sessions, "TURNS_MAX", 0)
    assert "0 sessions are at work for tools already" in await refusal(adapter, "start", prompt="Hm?")


async def test_without_options_there_are_no_sessions(kit: RunningDaemon) -> None:
    kit.tool("talk", TALK)
    async with adapted(kit) as adapter:
        assert "no options were made" in await refusal(adapter, "send", prompt="Hm?")
