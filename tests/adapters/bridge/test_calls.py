"""Sessions and calls of `toolcell bridge`: what a host says, and what it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.adapters.bridge.host import Host, bridge
from tests.daemons import RunningDaemon

from toolcell import _version

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_first_message_states_the_version_of_the_protocol(host: Host) -> None:
    said = await host.hears(lambda _: True)
    assert (said["type"], said["protocol"], said["version"]) == ("hello", 1, _version.VERSION)


async def test_a_session_has_the_tools_of_its_directory_and_a_call_its_result(
    host: Host, served: RunningDaemon
) -> None:
    opened = await host.opened()
    tools = {tool["name"]: tool for tool in opened["tools"]}
    assert {"kit_who", "kit_steps", "toolcell_read_output"} <= tools.keys()
    assert (tools["kit_who"]["description"], opened["problems"]) == ("Who calls.", [])
    ended = await host.call("kit_figures")
    assert (ended["ok"], ended["text"], ended["outcome"]["details"]) == (True, '{"a":1.5}', {"a": 1.5})


async def test_a_tool_knows_who_calls_and_in_which_trace(host: Host, served: RunningDaemon) -> None:
    await host.opened(agent="mine")
    about = {"session_id": "ses_1", "message_id": "msg_1", "agent_name": "plan", "traceparent": TRACE}
    ended = await host.call("kit_who", "c-1", **about)
    expected = {**about, "call_id": "c-1", "agent": "mine", "directory": str(served.project)}
    assert ended["outcome"]["details"] == expected


async def test_an_id_that_is_used_again_is_another_call(host: Host) -> None:
    await host.opened()
    assert (await host.call("kit_who", "a b"))["outcome"]["details"]["call_id"] == "a_b"
    host.say("call", id="a b", tool="kit_who")
    ended = await host.hears(lambda one: one["type"] == "ended", 2)
    assert ended["outcome"]["details"]["call_id"].startswith("a_b.")


async def test_events_are_told_before_the_end_and_lines_are_ascii(host: Host) -> None:
    await host.opened()
    await host.call("kit_steps")
    told = [one for one in host.said if one["type"] in ("event", "ended")]
    events = {one["event"]: one for one in told[:-1]}
    assert told[-1]["type"] == "ended"
    assert events.keys() == {"started", "metadata", "progress", "update", "log"}
    assert events["progress"]["message"].startswith("half")
    assert (events["progress"]["done"], events["progress"]["total"]) == (1, 2)
    assert (events["metadata"]["title"], events["metadata"]["values"]["rows"]) == ("Three rows", 3)
    assert events["update"]["content"] == [{"type": "text", "text": "so far"}]


async def test_a_host_is_told_the_events_that_it_names(host: Host) -> None:
    await host.opened(events=["progress"])
    await host.call("kit_steps")
    assert [one["event"] for one in host.said if one["type"] == "event"] == ["progress"]


async def test_an_abort_stops_the_tool_and_gives_it_the_reason(host: Host, served: RunningDaemon) -> None:
    await host.opened()
    host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
    await host.event("update")
    host.say("abort", id="1", reason="by the test")
    ended = await host.ended("1")
    assert (ended["ok"], ended["outcome"]["kind"], ended["outcome"]["stopped"]) == (
        False,
        "aborted",
        "settled",
    )
    assert ended["outcome"]["content"] == [{"type": "text", "text": "here"}]
    assert (served.project / "stopped").read_text() == "by the test"


async def test_an_abort_that_is_said_with_its_call_stops_it(host: Host, served: RunningDaemon) -> None:
    await host.opened()
    host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
    host.say("abort", id="1")
    assert (await host.ended("1"))["outcome"]["kind"] == "aborted"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"allowed": True}, "allowed"),
        ({"allowed": True, "always": True}, "allowed"),
        ({"allowed": False, "reason": "not on Mondays"}, "denied: not on Mondays"),
        ({"allowed": False}, "denied: "),
    ],
)
async def test_a_question_is_put_to_the_host(host: Host, answer: dict[str, Any], text: str) -> None:
    await host.opened(answers=True)
    host.say("call", id="1", tool="kit_asks")
    ask = await host.hears(lambda one: one["type"] == "ask")
    assert ask["question"] == "Really?"
    assert (ask["permission"], ask["patterns"], ask["always"]) == ("edit", ["a.py"], ["*.py"])
    assert ask["details"] == {"n": 1}
    host.say("answer", id="1", ask=ask["ask"], **answer)
    assert (await host.ended("1"))["text"].startswith(text)


async def test_a_host_that_does_not_answer_has_questions_denied(host: Host) -> None:
    await host.opened()
    assert (await host.call("kit_asks"))["text"].startswith("denied: ")
    assert not [one for one in host.said if one["type"] == "ask"]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"result": {"a": None}}, '{"a": null}'),
        ({}, "null"),
        ({"error": "no such door"}, "failed: door: no such door"),
    ],
)
async def test_a_service_is_the_hosts(host: Host, reply: dict[str, Any], text: str) -> None:
    await host.opened(services=["door"])
    host.say("call", id="1", tool="kit_requests", arguments={"service": "door"})
    asked = await host.hears(lambda one: one["type"] == "request")
    assert (asked["service"], asked["arguments"]) == ("door", {"call": 1, "self": 2})
    host.say("reply", id="1", request=asked["request"], **reply)
    assert (await host.ended("1"))["text"] == text


async def test_a_service_that_the_host_does_not_name_is_none(host: Host) -> None:
    await host.opened(services=["door"])
    assert (await host.call("kit_requests", arguments={"service": "window"}))["text"].startswith("failed: ")


async def test_a_question_of_a_call_that_has_ended_is_not_waited_for(host: Host) -> None:
    await host.opened(answers=True)
    host.say("call", id="1", tool="kit_asks")
    ask = await host.hears(lambda one: one["type"] == "ask")
    host.say("abort", id="1")
    await host.ended("1")
    host.say("answer", id="1", ask=ask["ask"], allowed=True)
    assert (await host.error())["code"] == "unknown_id"


async def test_a_tool_named_like_the_agents_own_has_another_name(host: Host, served: RunningDaemon) -> None:
    served.tool("bash", "from toolcell import tool\n\n@tool\ndef bash() -> str:\n    return 'mine'\n")
    served.describe()
    opened = await host.opened(agent_title="The Agent", own_tools=["bash"], kept_tools=["execute"])
    names = {tool["name"] for tool in opened["tools"]}
    assert ("bash" in names, "toolcell_bash" in names) == (False, True)
    (problem,) = [one for one in opened["problems"] if one["tool"] == "bash"]
    assert "The Agent has a tool bash of its own, which is kept" in problem["message"]
    assert (await host.call("toolcell_bash"))["text"] == "mine"


async def test_an_output_that_was_cut_can_be_read_on(host: Host) -> None:
    await host.opened(limits={"output_bytes": 1000})
    ended = await host.call("kit_long", limits={"output_bytes": 500})
    output = ended["outcome"]["output"]
    assert f'toolcell_read_output(output_id="{output["id"]}", start=0)' in ended["text"]
    arguments = {"output_id": output["id"], "start": 10, "length": 4}
    read = await host.call("toolcell_read_output", "2", arguments=arguments)
    assert read["text"] == "[bytes 10 to 13; the next: start=14]\nzzzz"


async def test_files_of_a_result_are_blocks_of_the_outcome(host: Host) -> None:
    await host.opened()
    ended = await host.call("kit_report")
    (block,) = ended["outcome"]["content"]
    assert block == {"type": "file", "data": "YSxi", "mime_type": "text/csv", "name": "a.csv"}


async def test_a_change_of_the_tools_is_told_and_a_reload_is_answered(
    host: Host, served: RunningDaemon
) -> None:
    await host.opened()
    served.tool("more", "from toolcell import tool\n\n@tool\ndef more() -> str:\n    return 'more'\n")
    told = await host.hears(
        lambda one: one["type"] == "tools" and "more" in {tool["name"] for tool in one["tools"]}
    )
    assert told["session"] == "s"
    host.say("reload")
    await host.hears(lambda one: one["type"] == "tools" and one["reloaded"])
    assert (await host.call("more"))["text"] == "more"


async def test_tools_hear_what_happens_to_the_agents_session(host: Host, served: RunningDaemon) -> None:
    from tests.adapters.conftest import HEARS, heard

    served.tool("hears", HEARS)
    served.describe()
    await host.opened()
    await host.call("hears")
    host.say("tell", reason="switch", data={"n": 1}, session_id="ses_2")
    assert (await heard(served.project, "switch"))["switch"] == [{"n": 1}, "ses_2"]


async def test_sessions_of_several_directories_live_in_one_bridge(
    host: Host, served: RunningDaemon, tmp_path: Any
) -> None:
    await host.opened()
    other = await host.opened("other", directory=str(tmp_path))
    assert [tool["name"] for tool in other["tools"]] == ["toolcell_read_output"]
    host.say("close", session="other")
    await host.hears(lambda one: one["type"] == "closed" and one["session"] == "other")
    assert (await host.call("kit_figures"))["ok"]
    assert served.status().sessions == 1
    assert (await host.opened("other"))["session"] == "other"


async def test_closing_a_session_aborts_its_calls_and_tells_their_ends_first(
    host: Host, served: RunningDaemon
) -> None:
    await host.opened()
    host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
    await host.event("update")
    host.say("close")
    await host.hears(lambda one: one["type"] == "closed")
    assert [one["type"] for one in host.said][-2:] == ["ended", "closed"]
    assert host.said[-2]["outcome"]["kind"] == "aborted"
    assert (served.project / "stopped").exists()
    assert served.status().sessions == 0


async def test_the_end_of_the_input_aborts_what_runs_and_closes_every_session(served: RunningDaemon) -> None:
    async with bridge(served) as host:
        for session in ("a", "b"):
            await host.opened(session)
            host.say("call", session=session, id=session, tool="kit_waits", arguments={"name": session})
        await host.hears(lambda one: one.get("event") == "update", 2)
        assert await host.leave() == 0
    for session in ("a", "b"):
        assert (served.project / session).exists()
        assert (await host.ended(session))["outcome"]["kind"] == "aborted"
        assert {"type": "closed", "session": session} in host.said
    assert served.status().sessions == 0


async def test_a_signal_ends_it_as_the_end_of_the_input_does(served: RunningDaemon) -> None:
    async with bridge(served) as host:
        await host.opened()
        host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
        await host.event("update")
        host.process.terminate()
        assert await host.wait() == 0
    assert (served.project / "stopped").exists()
    assert (await host.ended("1"))["outcome"]["kind"] == "aborted"


async def test_a_daemon_that_is_not_there_is_named_and_the_session_can_be_opened_later(
    host: Host, served: RunningDaemon
) -> None:
    nowhere = str(served.directory / "nowhere" / "daemon.sock")
    host.say("open", socket=nowhere, daemon="running")
    error = await host.error()
    assert (error["code"], error["to"], error["session"]) == ("unavailable", "open", "s")
    assert error["message"] == f"No daemon runs here: there is no {served.directory}/nowhere."
    assert error["remedy"] == "Start the daemon: toolcell serve"
    await host.opened()


async def test_a_private_daemon_ends_with_its_session(host: Host, served: RunningDaemon) -> None:
    await host.opened("own", daemon="private")
    host.say("call", session="own", id="1", tool="kit_figures")
    assert (await host.ended("1"))["ok"]
    assert served.status().sessions == 0
    host.say("close", session="own")
    await host.hears(lambda one: one["type"] == "closed")


async def test_a_session_that_is_closed_while_it_is_opened_is_closed(host: Host) -> None:
    host.say("open", daemon="private")
    host.say("close")
    await host.hears(lambda one: one["type"] == "closed")
    assert [one["type"] for one in host.said] == ["hello", "closed"]  # its opening was not waited for
    await host.opened()


async def test_many_calls_run_at_once_and_each_has_its_own_end(host: Host) -> None:
    await host.opened(events=[])
    for number in range(20):
        host.say("call", id=str(number), tool="kit_who")
    ends = await asyncio.gather(*(host.ended(str(number)) for number in range(20)))
    assert [json.loads(end["text"])["call_id"] for end in ends] == [str(number) for number in range(20)]
