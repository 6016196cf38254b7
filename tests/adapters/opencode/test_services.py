"""What tools ask of OpenCode through the plugin: sessions that are begun for them, and talk with these."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.adapters.conftest import NEW, without_times
from tests.adapters.opencode.serve import OpenCode, until
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

TALK = """
    from typing import Any
    from toolcell import ToolContext, tool

    @tool
    async def talk(service: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        return await context.request(service, **arguments)
    """


@pytest.fixture(scope="module")
def config(kit: RunningDaemon) -> dict[str, Any]:
    """The plugin, and a tool that talks."""
    kit.tool("talk", TALK)
    return {"plugin": [plugin_entry(socket=kit.socket, start=False)]}


def talk(service: str, **arguments: Any) -> Use:
    return Use("talk", {"service": f"session.{service}", "arguments": arguments})


async def test_a_tool_talks_with_a_session_that_it_begins(kit: RunningDaemon, opencode: OpenCode) -> None:
    who = Use("kit_whoami")
    first, second, listed = (
        talk("send", prompt="Who are you?"),
        talk("send", prompt="", agent_name="x"),
        talk("list"),
    )
    async with opencode.stay() as stay:
        script = opencode.model.script
        script.turns += [Turn(uses=(first,)), Turn(uses=(who,)), Turn(text="It is me."), Turn(text="done")]
        await stay.turn()
        answered = json.loads(stay.shown(first)[0])
        assert answered["reply"] == "It is me."
        part = await stay.part(who, answered["session_id"])
        assert json.loads(part["state"]["output"])["session_id"] == answered["session_id"]
        session = (await stay.client.get(f"/session/{answered['session_id']}")).raise_for_status().json()
        assert session["parentID"] == stay.id

        again = talk("send", prompt="Still you?", session_id=answered["session_id"])
        script.turns += [Turn(uses=(again,)), Turn(text="Still me."), Turn(text="done")]
        await stay.turn()
        assert json.loads(stay.shown(again)[0]) == {**answered, "reply": "Still me."}

        wrong, sessions = await stay.use(second, listed)
        assert "prompt: should be a text" in wrong
        one = {"session_id": answered["session_id"], **NEW, "running": False}
        assert one in map(without_times, json.loads(sessions)["sessions"])


async def test_a_tool_can_abort_the_turn_that_called_it(kit: RunningDaemon, opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        stop = Use("talk", {"service": "agent.abort", "arguments": {}})
        opencode.model.script.turns += [Turn(uses=(stop,)), Turn(text="not reached")]
        await stay.turn()
        assert [turn.text for turn in opencode.model.script.turns] == ["not reached"]
        opencode.model.script.turns.clear()
        echo = Use("kit_echo", {"text": "and on it goes"})
        assert await stay.use(echo) == ["and on it goes"]


async def test_a_session_is_begun_for_an_agent_and_goes_on_by_itself(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    who = Use("kit_whoami")
    begun, unknown = (
        talk("start", prompt="Look.", agent_name="general"),
        talk("start", prompt="Look.", agent_name="unknown"),
    )
    async with opencode.stay() as stay:
        (said,) = await stay.use(unknown)
        assert "no agent unknown; there are " in said
        # Both sessions work at the same time.
        opencode.model.script.turns += [
            Turn(uses=(who,), to="Look."),
            Turn(uses=(begun,)),
            Turn(text="begun"),
        ]
        await stay.turn()
        session = json.loads((await stay.part(begun))["state"]["output"])["session_id"]

        async def ended() -> Any:
            messages = (await stay.client.get(f"/session/{session}/message")).json()
            parts = [
                part for message in messages for part in message["parts"] if part.get("callID") == who.id
            ]
            return parts and parts[0]["state"]["status"] == "completed" and parts[0]["state"]["output"]

        assert json.loads(await until(ended))["agent_name"] == "general"
        await until(lambda: idle(stay))


async def idle(stay: Any) -> bool:
    """Whether no session works."""
    return not (await stay.client.get("/session/status")).raise_for_status().json()


async def test_a_session_cannot_wait_for_itself(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        script = opencode.model.script
        first = talk("send", prompt="Hello.")
        (said,) = await stay.use(first)
        other = json.loads(said)["session_id"]
        inner = talk("send", prompt="And you?", session_id=other)
        outer = talk("send", prompt="Ask yourself.", session_id=other)
        script.turns.clear()
        script.turns += [Turn(uses=(outer,)), Turn(uses=(inner,)), Turn(text="I cannot."), Turn(text="done")]
        await stay.turn()
        part = await stay.part(inner, other)
        assert f"session {other} waits for this call" in part["state"]["error"]
        assert json.loads(stay.shown(outer)[0])["reply"] == "I cannot."


async def test_an_abort_reaches_what_another_session_runs(kit: RunningDaemon, opencode: OpenCode) -> None:
    asking, waiting = talk("send", prompt="Wait."), Use("kit_waits", {"name": "deep"})
    async with opencode.stay() as stay:
        async with stay.using(asking):
            opencode.model.script.turns[1:] = [Turn(uses=(waiting,))]
            await until((kit.project / "deep.there").exists)
            await stay.abort()
        await until((kit.project / "deep.stopped").exists)
        await until(lambda: idle(stay))
