"""The plugin in a real OpenCode: the tools are its own, each call goes to the daemon and back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from psutil import Process
from tests.adapters.openai import offered
from tests.adapters.opencode.serve import OpenCode, until
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

OPENCODES_CUT = 50 * 1024
"""Of a longer text OpenCode keeps the head, and names a file."""


async def outcome_text(kit: RunningDaemon, tool: str, arguments: dict[str, object]) -> str:
    """What the daemon gives for the same call."""
    async with kit.connect() as session:
        return (await session.call(tool, arguments)).text


async def there(kit: RunningDaemon, use: Use) -> Process:
    """The process of a tool that waits, once it does; its own view of the processes is another."""
    await until((kit.project / f"{use.arguments['name']}.there").exists)
    answer = kit.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (pid,) = (worker.pid for worker in answer.workers if worker.call_id.startswith(use.id))
    return Process(pid)


async def gone(process: Process) -> bool:
    """Wait until a process is no more."""
    return bool(await until(lambda: not process.is_running()))


async def test_the_model_is_offered_the_tools_with_their_whole_schemas(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as stay, kit.connect() as session:
        await stay.use(Use("kit_echo", {"text": "a"}))
        shown = offered(opencode.model.script.requests[0])
        assert shown.keys() >= session.catalog.tools.keys() | {"toolcell_read_output"}
        for info in session.catalog.tools.values():
            assert shown[info.name]["description"] == info.description
        order = session.catalog.tools["kit_order"].input_schema
        parameters = shown["kit_order"]["parameters"]
        assert parameters["properties"] == order["properties"]
        assert parameters["$defs"] == order["$defs"]
        assert parameters["required"] == order["required"] == ["lines", "side"]
        assert shown["kit_echo"]["parameters"]["required"] == ["text"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kit_echo", {"text": 'hé\tà la ligne\n\n«🦊» \\ " end', "style": "plain"}),
        ("kit_order", {"lines": [{"sku": "a", "count": 2}, {"sku": "b"}], "side": "sell"}),
        ("kit_long", {"lines": 150}),
    ],
)
async def test_a_result_is_byte_for_byte_what_the_daemon_gave(
    kit: RunningDaemon, opencode: OpenCode, tool: str, arguments: dict[str, object]
) -> None:
    async with opencode.stay() as stay:
        (said,) = await stay.use(Use(tool, arguments))
    assert said.encode() == (await outcome_text(kit, tool, arguments)).encode()


async def test_arguments_and_a_result_of_many_messages_arrive_whole(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    text = "".join(f"{n:07}é" for n in range(20_000))  # 180,000 bytes; the contract's messages have 64 KiB
    async with opencode.stay() as stay, kit.connect() as session:
        (said,) = await stay.use(Use("kit_echo", {"text": text}))
        whole = (await session.call("kit_echo", {"text": text}, limits={"output_bytes": 50_000})).text
        assert said.startswith(whole)
        assert f"The whole output has {len(text.encode())} bytes" in said


async def test_wrong_arguments_are_an_error_that_says_what_is_wrong(opencode: OpenCode) -> None:
    use = Use("kit_order", {"lines": "many"})
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        part = await stay.part(use)
    assert 'lines: should be a valid array, got "many"' in said
    assert "side: is missing" in said
    assert part["state"]["status"] == "error"


async def test_what_a_tool_says_of_its_failure_is_what_the_model_reads(opencode: OpenCode) -> None:
    use = Use("kit_fails", {"why": "no paper"})
    async with opencode.stay() as stay:
        assert await stay.use(use) == ["It did not work: no paper"]
        assert (await stay.part(use))["state"]["status"] == "error"


async def test_a_picture_reaches_the_model(kit: RunningDaemon, opencode: OpenCode) -> None:
    use = Use("kit_picture")
    async with opencode.stay() as stay:
        await stay.use(use)
        (attachment,) = (await stay.part(use))["state"]["attachments"]
    async with kit.connect() as session:
        (block,) = (await session.call("kit_picture")).to_dict()["content"]
    url = f"data:image/png;base64,{block['data']}"
    assert (attachment["mime"], attachment["url"]) == ("image/png", url)
    assert url in json.dumps(opencode.model.script.requests[-1]["messages"])


async def test_a_long_output_is_cut_by_us_alone_and_can_be_read_to_its_end(opencode: OpenCode) -> None:
    use = Use("kit_long", {"lines": 1_500})
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        state = (await stay.part(use))["state"]
        assert state["metadata"]["truncated"] is False
        assert said == state["output"]
        assert 45_000 < len(said.encode()) <= OPENCODES_CUT
        head, notice, note = said.rsplit("\n\n", 2)
        assert notice.startswith("[truncated: ")
        ((total, output_id),) = re.findall(r'has (\d+) bytes: .*output_id="([^"]+)"', note)
        rest, start = "", len(head.encode())
        while start < int(total):
            read = Use("toolcell_read_output", {"output_id": output_id, "start": start})
            (more,) = await stay.use(read)
            assert (await stay.part(read))["state"]["metadata"]["truncated"] is False
            line, text = more.split("\n", 1)
            start = int(re.findall(r"start=(\d+)", line)[0])
            rest += text
    assert head + rest == "\n".join(f"{n:08d} " + "x" * 90 for n in range(1_500))


async def test_many_short_lines_are_not_cut_by_opencode_either(opencode: OpenCode) -> None:
    use = Use("kit_echo", {"text": "x\n" * 6_000})
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        (output_id,) = re.findall(r'output_id="([^"]+)"', said)
        read = Use("toolcell_read_output", {"output_id": output_id})
        await stay.use(read)
        states = [(await stay.part(one))["state"] for one in (use, read)]
    assert [state["metadata"]["truncated"] for state in states] == [False, False]


async def test_reading_on_says_what_is_wrong_with_its_arguments(opencode: OpenCode) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"output_id": "o-1", "start": -1},
        {"output_id": "o-1", "length": "all"},
    )
    uses = [Use("toolcell_read_output", arguments) for arguments in (*wrong, {"output_id": "o-1"})]
    async with opencode.stay() as stay:
        said = await stay.use(*uses)
        states = [(await stay.part(use))["state"]["status"] for use in uses]
    assert [text.split(": ")[2] for text in said[:3]] == ["output_id", "start", "length"]
    assert "o-1" in said[3]
    assert states == ["error"] * 4


async def test_how_far_a_tool_came_is_in_the_metadata_of_its_result(opencode: OpenCode) -> None:
    # While it runs OpenCode 1.18 drops what plugins tell: anomalyco/opencode#50313.
    use = Use("kit_steps", {"count": 3})
    async with opencode.stay() as stay:
        assert await stay.use(use) == ["3 steps"]
        state = (await stay.part(use))["state"]
    assert state["metadata"]["progress"] == {"done": 3, "total": 3, "message": "step 3"}


async def test_a_question_is_put_to_the_user_and_the_answer_to_the_tool(opencode: OpenCode) -> None:
    use = Use("kit_asks", {"path": "a.py"})
    async with opencode.stay() as stay:
        async with stay.using(use):
            question = await stay.question()
            await stay.reply(question, "once")
        assert stay.shown(use) == ["wrote a.py"]
    assert (
        question["permission"] == "kit_asks: Write a.py?"
    )  # what has no rule, as "write", is allowed unasked
    assert question["patterns"] == question["always"] == ["a.py"]
    assert question["metadata"]["question"] == "Write a.py?"
    assert question["metadata"]["permission"] == "write"
    assert question["tool"]["callID"] == use.id


async def test_always_is_remembered_for_what_the_tool_named(opencode: OpenCode) -> None:
    same, other = Use("kit_asks", {"path": "b.py"}), Use("kit_asks", {"path": "c.py"})
    async with opencode.stay() as stay:
        async with stay.using(Use("kit_asks", {"path": "b.py"})):
            await stay.reply(await stay.question(), "always")
        assert await stay.use(same) == ["wrote b.py"]
        async with stay.using(other):
            await stay.reply(await stay.question(), "once")
        assert stay.shown(other) == ["wrote c.py"]


async def test_a_question_that_is_denied_ends_the_tool_and_the_turn(opencode: OpenCode) -> None:
    use = Use("kit_asks", {"path": "d.py"})
    async with opencode.stay() as stay:
        async with stay.using(use):
            await stay.reply(await stay.question(), "reject")
        state = (await stay.part(use))["state"]
        assert state["status"] == "error"
        assert "rejected permission" in state["error"]
        # As with OpenCode's own tools: after a no it is the user's turn to speak.
        assert len(opencode.model.script.requests) == 1


async def test_calls_of_one_message_run_at_the_same_time(kit: RunningDaemon, opencode: OpenCode) -> None:
    uses = [Use("kit_waits", {"name": name}) for name in ("left", "right")]
    async with opencode.stay() as stay:
        async with stay.using(*uses):
            processes = [await there(kit, use) for use in uses]
            assert all(process.is_running() for process in processes)
            await stay.abort()
        for process in processes:
            assert await gone(process)


async def test_an_abort_stops_a_tool_that_listens(kit: RunningDaemon, opencode: OpenCode) -> None:
    use = Use("kit_waits", {"name": "listens"})
    async with opencode.stay() as stay:
        async with stay.using(use):
            process = await there(kit, use)
            await stay.abort()
        await until((kit.project / "listens.stopped").exists)
        assert await gone(process)


async def test_an_abort_ends_a_tool_that_does_not_listen(kit: RunningDaemon, opencode: OpenCode) -> None:
    use = Use("kit_deaf", {"name": "deaf"})
    async with opencode.stay() as stay:
        async with stay.using(use):
            process = await there(kit, use)
            await stay.abort()
        assert await gone(process)
    async with opencode.stay() as stay:
        assert await stay.use(Use("kit_echo", {"text": "still here"})) == ["still here"]


async def test_a_tool_that_takes_too_long_is_ended(opencode: OpenCode) -> None:
    use = Use("kit_overdue")
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        assert (await stay.part(use))["state"]["status"] == "error"
    assert "timed_out" in said or "1.0 s" in said


async def test_a_crash_is_an_error_and_the_next_call_works(opencode: OpenCode) -> None:
    use = Use("kit_crash")
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        assert "SIGSEGV" in said
        assert (await stay.part(use))["state"]["status"] == "error"
        assert await stay.use(Use("kit_echo", {"text": "next"})) == ["next"]


async def test_a_tool_knows_who_calls(kit: RunningDaemon, opencode: OpenCode) -> None:
    use = Use("kit_whoami")
    async with opencode.stay() as stay:
        (said,) = await stay.use(use)
        part = await stay.part(use)
    assert json.loads(said) == {
        "session_id": stay.id,
        "message_id": part["messageID"],
        "call_id": use.id,
        "agent": "opencode",
        "agent_name": "build",
        "directory": str(kit.project),
    }


async def test_a_tool_knows_the_sub_agent_that_calls(kit: RunningDaemon, opencode: OpenCode) -> None:
    use = Use("kit_whoami")
    task = Use("task", {"description": "who", "prompt": "who?", "subagent_type": "general"})
    async with opencode.stay() as stay:
        script = opencode.model.script
        script.turns += [Turn(uses=(task,)), Turn(uses=(use,)), Turn(text="found"), Turn(text="done")]
        await stay.turn()
        (child,) = (await stay.client.get(f"/session/{stay.id}/children")).raise_for_status().json()
        part = await stay.part(use, child["id"])
    assert json.loads(part["state"]["output"]) == {
        "session_id": child["id"],
        "message_id": part["messageID"],
        "call_id": use.id,
        "agent": "opencode",
        "agent_name": "general",
        "directory": str(kit.project),
    }


async def test_one_id_of_two_calls_at_the_same_time_is_two_calls(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    """Some models number the calls of each message from 0."""
    use = Use("kit_waits", {"name": "first"}, id="call_0")
    async with opencode.stay() as one:
        async with one.using(use):
            first = await there(kit, use)
            async with opencode.stay() as other:
                assert await other.use(Use("kit_echo", {"text": "second"}, id="call_0")) == ["second"]
            assert first.is_running()
            await one.abort()
        assert await gone(first)


async def test_an_id_that_comes_again_is_another_call(opencode: OpenCode) -> None:
    found: list[dict[str, str]] = []
    for _ in range(2):
        async with opencode.stay() as stay:
            (said,) = await stay.use(Use("kit_whoami", id="call_1"))
            found.append({"stay": stay.id, **json.loads(said)})
    assert [one["session_id"] for one in found] == [one["stay"] for one in found]
    assert [one["call_id"].split(".")[0] for one in found] == ["call_1"] * 2


async def test_a_call_runs_what_was_saved_before_it_and_a_model_reads_that_an_edit_broke_it(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    path = kit.project / ".toolcell" / "tools" / "kit.py"
    before = path.read_text()
    use = Use("kit_echo", {"text": "a"})
    async with opencode.stay() as stay:
        try:
            for mark in "!?.":
                path.write_text(before.replace("else text", f'else text + "{mark}"'))
                assert await stay.use(use) == [f"a{mark}"]
            path.write_text("def echo(:\n")
            (shown,) = await stay.use(use)
        finally:
            path.write_text(before)
        assert shown.startswith("a.")
        assert "cannot be loaded: line 1: invalid syntax.]" in shown
        assert await stay.use(use) == ["a"]


async def test_what_a_tool_says_of_itself_is_looked_at_with_every_message(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    path = kit.project / ".toolcell" / "tools" / "kit.py"
    before = path.read_text()
    use = Use("kit_echo", {"text": "a"})
    async with opencode.stay() as stay:
        try:
            path.write_text(
                before.replace("Say it again.", "Say it once more.").replace("else text", 'else text + "!"')
            )

            async def told() -> bool:
                assert await stay.use(use) in (["a"], ["a!"])
                shown = offered(opencode.model.script.requests[-2])
                return bool(shown["kit_echo"]["description"] == "Say it once more.")

            await until(told)
            assert stay.shown(use) == ["a!"]
        finally:
            path.write_text(before)
