"""Claude Code calls tools through the adapter, and only its model is ours."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeSDKClient,
    Message,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
)
from claude_agent_sdk.types import PermissionResult
from mcp import types
from psutil import Process
from tests.adapters.anthropic import Model
from tests.adapters.claude.conftest import KEY, Claude, Start, adapted, fields
from tests.adapters.conftest import IMPATIENT, KIT, LATE
from tests.adapters.kit.kit import PICTURE
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters.base import Origin
from toolcell.adapters.claude import options
from toolcell.client import Answer, Ask, Event, Progress, Question
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECONDS_MAX = 20
"""For what takes a second at most; other tests may have the processors."""
LOOK_SECONDS = 0.01


def use(tool: str, /, **arguments: Any) -> Use:
    """A use of a tool, by the name that Claude Code gives it."""
    return Use(f"mcp__toolcell__{tool}", arguments)


async def result(claude: Claude, wanted: Use) -> dict[str, Any]:
    """What the model is shown of a use."""
    claude.model.script.uses(wanted)
    await claude.turn()
    return shown(claude, wanted)


def shown(claude: Claude, wanted: Use) -> dict[str, Any]:
    found = claude.model.result(wanted.id)
    assert found is not None
    return found


def texts(block: dict[str, Any]) -> list[str]:
    """The texts of a result, whichever of its two forms it has."""
    content = block["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


async def given(claude: Claude, tool: str, **arguments: Any) -> str:
    """What the daemon gives for the same call, in a text."""
    return (await claude.adapter.session.call(tool, arguments)).text


async def appears(path: Path) -> str:
    """What a file says once it is there."""
    async with asyncio.timeout(SECONDS_MAX):
        while not (path.exists() and path.read_text()):
            await asyncio.sleep(LOOK_SECONDS)
    return path.read_text()


def process_of(daemon: RunningDaemon, wanted: Use) -> Process:
    """The process that runs a call, by the daemon's account."""
    answer = daemon.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (pid,) = (worker.pid for worker in answer.workers if worker.call_id == wanted.id)
    return Process(pid)


async def gone(process: Process) -> None:
    """Wait until a process is no more."""
    async with asyncio.timeout(SECONDS_MAX):
        while process.is_running():
            await asyncio.sleep(LOOK_SECONDS)


async def test_the_model_is_offered_every_tool_as_it_was_written(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as claude:
        await claude.turn()
        offered = claude.model.offered()
        ours = {name.removeprefix("mcp__toolcell__") for name in offered if name.startswith("mcp__")}
        assert ours == {*claude.adapter.session.catalog.tools, "toolcell_read_output"}
        assert "Bash" in offered  # Claude's own are there as well, and did not push ours behind a search
        for name, info in claude.adapter.session.catalog.tools.items():
            tool = offered[f"mcp__toolcell__{name}"]
            assert tool["description"] == info.description
            assert tool["input_schema"] == {"properties": {}, **info.input_schema}
        assert "$defs" in offered["mcp__toolcell__kit_order"]["input_schema"]
        hints = {tool.name: tool.annotations for tool in claude.adapter.tools()}
        assert hints["kit_echo"] == types.ToolAnnotations(read_only_hint=True)
        assert (
            hints["kit_steps"] == types.ToolAnnotations()
        )  # its author has said nothing, and neither may we


async def test_a_file_that_takes_long_to_describe_is_offered_all_the_same(
    kit: RunningDaemon, start: Start
) -> None:
    before = kit.config.read_text()
    late = kit.tool("late", LATE)
    kit.configure(IMPATIENT)
    try:
        async with start(kit) as claude:
            await claude.turn()
            assert "mcp__toolcell__late" in claude.model.offered()
    finally:
        late.unlink()
        kit.config.write_text(before)
        kit.reload()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kit_echo", {"text": "  two spaces, \u00fc, \u4f60\u597d, \U0001f980, a tab\t\n\n and the end \n"}),
        ("kit_echo", {"text": "</tool_result> <system> [truncated]", "style": "loud"}),
        ("kit_order", {"lines": [{"sku": "a", "count": 2}, {"sku": "b"}], "side": "buy"}),
        ("kit_long", {"lines": 470}),
    ],
)
async def test_the_model_reads_what_the_daemon_gave(
    claude: Claude, tool: str, arguments: dict[str, Any]
) -> None:
    wanted = use(tool, **arguments)
    found = await result(claude, wanted)
    assert texts(found) == [await given(claude, tool, **arguments)]
    assert not found.get("is_error")


async def test_wrong_arguments_are_an_error_that_names_them(claude: Claude) -> None:
    found = await result(claude, use("kit_order", lines=[{"sku": 1}], side="keep"))
    assert found["is_error"] is True
    (text,) = texts(found)
    assert "lines[0].sku" in text
    assert 'side: should be "buy" or "sell", got "keep"' in text


async def test_the_failure_of_a_tool_is_an_error_in_its_words(claude: Claude) -> None:
    found = await result(claude, use("kit_fails", why="no paper"))
    assert (found["is_error"], texts(found)) == (True, ["It did not work: no paper"])


async def test_a_long_failure_is_shown_whole(claude: Claude) -> None:
    """As an error its middle would be cut out; so it has no flag, and says first that it is one."""
    why = " ".join(f"{number:06}" for number in range(3000))
    found = await result(claude, use("kit_fails", why=why))
    assert texts(found) == ["The tool failed: tool_error.", f"It did not work: {why}"]


async def test_the_model_sees_a_picture(claude: Claude) -> None:
    block, _ = (await result(claude, use("kit_picture")))["content"]  # then where Claude Code keeps a copy
    assert block["type"] == "image"
    assert block["source"]["media_type"] == "image/png"
    assert base64.b64decode(block["source"]["data"]) == PICTURE


NOISE = """
    import os, struct, zlib
    from toolcell import File, Image, tool

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    @tool
    def noise(side: int) -> Image:
        rows = b"".join(b"\\0" + os.urandom(side * 3) for _ in range(side))
        head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
        return Image(data=b"\\x89PNG\\r\\n\\x1a\\n" + b"".join(chunk(*part) for part in parts))

    @tool
    def paper() -> File:
        return File(data=b"%PDF-1.7 paper", name="a b.pdf")

    @tool
    def drawing() -> Image:
        return Image(data=b"<svg xmlns='http://www.w3.org/2000/svg'/>", format="svg+xml")
    """


async def test_a_large_picture_does_not_end_the_agent(daemon: RunningDaemon, start: Start) -> None:
    daemon.tool("noise", NOISE)
    async with start(daemon) as claude:
        block, _ = (await result(claude, use("noise", side=1300)))["content"]
        assert block["type"] == "image"
        # And one of a kind that the model's wire has no place for is named.
        found = await result(claude, use("noise_drawing"))
        assert texts(found) == ["[image: image/svg+xml, 41 bytes]"]
        # A file of another kind is named, and Claude Code gets the whole of it.
        found = await result(claude, use("noise_paper"))
        named, kept = texts(found)
        assert named == "[file: a b.pdf, application/pdf, 14 bytes]"
        assert Path(kept.rpartition(" saved to ")[2]).read_bytes() == b"%PDF-1.7 paper"


async def test_a_long_output_is_cut_by_the_daemon_alone_and_can_be_read_on(
    kit: RunningDaemon, start: Start
) -> None:
    async with start(kit) as claude:
        found = await result(claude, use("kit_long", lines=3000))
        text, note = texts(found)
        assert text == await given(claude, "kit_long", lines=3000)
        assert text.endswith("[truncated: output exceeded 48000 bytes]")
        (output_id,) = re.findall(r'output_id="([^"]+)"', note)

        whole = "\n".join(f"{n:08d} " + "x" * 90 for n in range(3000))
        first = text.index("\n\n[truncated")
        read = text[:first]
        assert whole.startswith(read)
        while len(read) < len(whole):
            found = await result(claude, use("toolcell_read_output", output_id=output_id, start=len(read)))
            (text,) = texts(found)
            _, _, more = text.partition("\n")
            assert more
            read += more
        assert read == whole


async def test_a_session_with_limits_of_its_own_is_not_cut_by_the_agent_either(
    kit: RunningDaemon, home: Path, model: Model
) -> None:
    """The daemon's own limit and the note below are over what Claude Code puts into a file, unless a tool says more."""
    wanted = use("kit_long", lines=3000)
    model.script.uses(wanted)
    async with (
        kit.connect(agent="claude") as session,
        ClaudeSDKClient(options(session, **fields(model, kit.project))) as client,
    ):
        await client.query("go")
        assert [message async for message in client.receive_response()]
    found = model.result(wanted.id)
    assert found is not None
    text, note = texts(found)
    assert len(text + note) > 50_000
    assert "toolcell_read_output(" in note


async def test_the_application_hears_what_a_running_tool_tells(kit: RunningDaemon, start: Start) -> None:
    """Claude Code itself shows no progress of servers in the process of its SDK."""
    heard: list[tuple[Origin, Event]] = []

    async def on_event(origin: Origin, event: Event) -> None:
        heard.append((origin, event))

    async with start(kit, on_event=on_event) as claude:
        wanted = use("kit_steps", count=4)
        assert texts(await result(claude, wanted)) == ["4 steps"]
    steps = [event for _, event in heard if isinstance(event, Progress)]
    assert steps[-1] == Progress(4, 4, "step 4")
    assert {origin.call_id for origin, _ in heard} == {wanted.id}


@pytest.mark.parametrize(
    ("answer", "said", "is_error"),
    [(True, "wrote a.txt", False), ("always", "wrote a.txt", False), (False, "", True)],
)
async def test_a_question_is_put_to_whom_the_application_named(
    kit: RunningDaemon, start: Start, answer: Answer, said: str, is_error: bool
) -> None:
    asked: list[Ask] = []

    async def ask(question: Ask) -> Answer:
        asked.append(question)
        return answer

    async with start(kit, ask=ask) as claude:
        wanted = use("kit_asks", path="a.txt")
        found = await result(claude, wanted)
    assert bool(found.get("is_error")) is is_error
    assert said in texts(found)[0]
    (question,) = asked
    assert (question.question, question.permission, question.call.id) == ("Write a.txt?", "write", wanted.id)


FORM = """
from toolcell import ToolContext, tool

@tool
async def picks(context: ToolContext) -> str:
    ui = context.ui
    await ui.notify("Three questions.")
    return repr([await ui.select("Which?", ["a", "b"]), await ui.input("Name?", "Ada"), await ui.confirm("Sure?")])
"""


async def test_a_question_for_a_value_is_put_through_the_callback(kit: RunningDaemon, start: Start) -> None:
    kit.tool("form", FORM)
    answers: list[object] = ["b", "Eve", True]
    asked: list[str] = []

    async def dialog(question: Question) -> object:
        asked.append(f"{question.kind} {question.message} {list(question.options)} {question.default}")
        return answers.pop(0)

    async with start(kit, question=dialog) as claude:
        found = await result(claude, use("form_picks"))
        assert texts(found) == ["['b', 'Eve', True]"]
        assert asked == ["select Which? ['a', 'b'] ", "input Name? [] Ada", "confirm Sure? [] "]
        claude.adapter.questioned = None
        found = await result(claude, use("form_picks"))
        assert found["is_error"] is True
        assert "no `question` to ask with" in texts(found)[0]


async def test_callbacks_that_raise_are_the_tools_to_read_and_end_nothing(
    kit: RunningDaemon, start: Start
) -> None:
    kit.tool("form", FORM)

    async def dialog(question: object) -> bool:
        raise RuntimeError("no screen")

    def heard(origin: object, event: object) -> None:
        raise RuntimeError("no window")

    async with start(kit, ask=dialog, question=dialog, on_event=heard) as claude:
        asked = await result(claude, use("kit_asks", path="b.txt"))
        assert "the agent could not ask: RuntimeError: no screen" in texts(asked)[0]
        picked = await result(claude, use("form_picks"))
        assert "RuntimeError: no screen" in texts(picked)[0]
        assert texts(await result(claude, use("kit_steps", count=2))) == ["2 steps"]


async def test_a_question_is_denied_where_nobody_was_named(claude: Claude) -> None:
    found = await result(claude, use("kit_asks", path="a.txt"))
    assert found["is_error"] is True
    assert "wrote" not in texts(found)[0]


async def test_who_prompts_for_tools_is_prompted_for_these_as_well(kit: RunningDaemon, start: Start) -> None:
    asked: list[str] = []

    async def can_use_tool(
        name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        asked.append(name)
        return PermissionResultDeny(message="not today")

    async with start(kit, can_use_tool=can_use_tool) as claude:
        found = await result(claude, use("kit_fails", why="it ran"))
        assert asked == ["mcp__toolcell__kit_fails"]
        assert "not today" in texts(found)[0]
        assert "it ran" not in texts(found)[0]


MEETS = """
    from toolcell import ToolContext, tool

    @tool(read_only=True)
    async def meets(name: str, context: ToolContext) -> str:
        await context.ask(f"Is the other there, {name}?")
        return name
    """


async def test_calls_that_only_read_run_side_by_side(daemon: RunningDaemon, start: Start) -> None:
    daemon.tool("meets", MEETS)
    both = asyncio.Barrier(2)

    async def ask(question: Ask) -> Answer:
        async with asyncio.timeout(SECONDS_MAX):
            await both.wait()
        return True

    async with start(daemon, ask=ask) as claude:
        one, other = use("meets", name="one"), use("meets", name="other")
        claude.model.script.uses(one, other)
        await claude.turn()
        assert (texts(shown(claude, one)), texts(shown(claude, other))) == (["one"], ["other"])


async def interrupted(claude: Claude, kit: RunningDaemon, wanted: Use, name: str) -> Process:
    """Begin a turn that waits for a tool, and interrupt it there."""
    claude.model.script.turns.append(Turn(uses=(wanted,)))
    await claude.client.query("go")
    turn = asyncio.create_task(claude.answer())
    try:
        await appears(kit.project / f"{name}.there")
        process = process_of(kit, wanted)
        assert process.is_running()
        await claude.client.interrupt()
        last = (await turn)[-1]
    finally:
        turn.cancel()
    assert isinstance(last, ResultMessage)
    assert last.subtype == "error_during_execution"
    return process


async def test_an_interrupt_stops_a_tool_that_listens(claude: Claude, kit: RunningDaemon) -> None:
    await gone(await interrupted(claude, kit, use("kit_waits", name="heard"), "heard"))
    assert (kit.project / "heard.stopped").exists()
    assert texts(await result(claude, use("kit_echo", text="and on it goes"))) == ["and on it goes"]


STOPS = """
from toolcell import ToolContext, tool

@tool
async def stops(context: ToolContext) -> str:
    await context.abort("enough")
    await context.abort.wait()
    return "not shown"
"""


async def test_a_tool_can_interrupt_the_agent_that_called_it(kit: RunningDaemon, start: Start) -> None:
    kit.tool("all", STOPS)
    async with start(kit) as claude:
        assert "did not set `interrupt`" in texts(await result(claude, use("all_stops")))[0]
        claude.adapter.interrupt = claude.client.interrupt
        claude.model.script.turns.append(Turn(uses=(use("all_stops"),)))
        last = (await claude.turn())[-1]
        assert isinstance(last, ResultMessage)
        assert last.subtype == "error_during_execution"
        assert texts(await result(claude, use("kit_echo", text="and on it goes"))) == ["and on it goes"]


async def test_a_session_that_a_tool_started_cannot_interrupt_the_one_of_the_user(kit: RunningDaemon) -> None:
    async def interrupt() -> None:
        raise AssertionError("another session's turn was aborted")

    async with adapted(kit) as adapter:
        adapter.interrupt = interrupt
        adapter._callers["c-1"] = "started"  # pyright: ignore[reportPrivateUsage]
        adapter._sub_sessions.known["started"] = cast("Any", None)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(RuntimeError, match="started by a tool"):
            await adapter.abort(cast("Any", SimpleNamespace(id="c-1")), "")


async def test_an_interrupt_ends_a_tool_that_does_not(claude: Claude, kit: RunningDaemon) -> None:
    await gone(await interrupted(claude, kit, use("kit_deaf", name="unheard"), "unheard"))
    assert texts(await result(claude, use("kit_echo", text="and on it goes"))) == ["and on it goes"]


async def test_who_leaves_the_client_leaves_no_tool_behind(kit: RunningDaemon, start: Start) -> None:
    """The handler returns when the tool has stopped, not when it is told to; deaf tools show the difference."""
    async with adapted(kit) as adapter:
        async with start(kit, adapter) as claude:
            wanted = use("kit_deaf", name="left")
            claude.model.script.turns.append(Turn(uses=(wanted,)))
            await claude.client.query("go")
            await appears(kit.project / "left.there")
            process = process_of(kit, wanted)
        assert not process.is_running()
        assert not adapter.session.calls


async def test_a_call_that_takes_too_long_is_an_error(claude: Claude) -> None:
    found = await result(claude, use("kit_overdue"))
    assert found["is_error"] is True
    assert "toolcell config set tool.kit_overdue.timeout" in texts(found)[0]


async def test_a_worker_that_dies_takes_nothing_with_it(claude: Claude) -> None:
    found = await result(claude, use("kit_crash"))
    assert found["is_error"] is True
    assert "SIGSEGV" in texts(found)[0]
    assert texts(await result(claude, use("kit_echo", text="still here"))) == ["still here"]


async def test_the_daemon_may_start_anew_between_two_calls(daemon: RunningDaemon, start: Start) -> None:
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    async with start(daemon) as claude:
        assert texts(await result(claude, use("kit_echo", text="before"))) == ["before"]
        daemon.stop()
        daemon.start()
        assert texts(await result(claude, use("kit_echo", text="after"))) == ["after"]


ONE = """
    from toolcell import tool

    @tool
    def one() -> str:
        return "one"
    """
TWO = ONE.replace('"one"', '"one, edited"') + ONE.replace("one", "two").replace(
    "from toolcell import tool", ""
)


async def test_a_resumed_agent_has_the_tools_as_they_are_now(daemon: RunningDaemon, start: Start) -> None:
    daemon.tool("one", ONE)
    async with adapted(daemon) as adapter:
        async with start(daemon, adapter) as claude:
            claude.model.script.uses(use("one"))
            session_id = _session_id(await claude.turn())
            assert "mcp__toolcell__one_two" not in claude.model.offered()
        daemon.tool("one", TWO)
        async with start(daemon, adapter, resume=session_id) as claude:
            edited, added = use("one"), use("one_two")
            assert texts(await result(claude, edited)) == ["one, edited"]
            assert texts(await result(claude, added)) == ["two"]


async def test_a_running_agent_takes_up_the_tools_when_it_is_told_to(
    daemon: RunningDaemon, start: Start
) -> None:
    daemon.tool("one", ONE)
    async with start(daemon) as claude:
        await claude.turn()
        assert "mcp__toolcell__one_two" not in claude.model.offered()
        daemon.tool("one", TWO)
        await claude.adapter.refresh(claude.client)
        assert texts(await result(claude, use("one_two"))) == ["two"]


def _session_id(said: list[Message]) -> str:
    last = said[-1]
    assert isinstance(last, ResultMessage)
    return last.session_id


async def test_a_tool_knows_who_called_it(claude: Claude, kit: RunningDaemon) -> None:
    wanted = use("kit_whoami")
    claude.model.script.uses(wanted)
    session_id = _session_id(await claude.turn())
    assert json.loads(texts(shown(claude, wanted))[0]) == {
        "session_id": session_id,
        "message_id": claude.model.message_ids[wanted.id],
        "call_id": wanted.id,
        "agent": "claude",
        "agent_name": "main",
        "directory": str(kit.project),
    }


async def test_a_tool_knows_the_sub_agent_that_called_it(kit: RunningDaemon, start: Start) -> None:
    helper = AgentDefinition(description="Helps.", prompt="You help.")
    async with start(kit, agents={"helper": helper}) as claude:
        whole = use("kit_whoami")
        sub = Use(
            "Agent",
            {"description": "d", "prompt": "p", "subagent_type": "helper", "run_in_background": False},
        )
        claude.model.script.turns += [Turn(uses=(sub,)), Turn(uses=(whole,)), Turn("I did."), Turn("It did.")]
        said = await claude.turn()
        assert json.loads(texts(shown(claude, whole))[0]) == {
            "session_id": _session_id(said),
            "message_id": claude.model.message_ids[whole.id],
            "call_id": whole.id,
            "agent": "claude",
            "agent_name": "helper",
            "directory": str(kit.project),
        }


async def test_without_an_observer_only_the_message_is_unknown(claude: Claude) -> None:
    wanted = use("kit_whoami")
    claude.model.script.uses(wanted)
    await claude.client.query("go")
    said = [message async for message in claude.client.receive_response()]
    caller = json.loads(texts(shown(claude, wanted))[0])
    assert (caller["message_id"], caller["session_id"]) == ("", _session_id(said))


ENVIRONMENT = """
    import os
    from toolcell import tool

    @tool
    def environment() -> dict[str, str]:
        return dict(os.environ)
    """


async def test_the_key_of_the_agent_does_not_reach_a_tool(
    make_daemon: Callable[[], RunningDaemon], start: Start
) -> None:
    """Not even by way of a daemon that was started with it."""
    daemon = make_daemon()
    daemon.environment["ANTHROPIC_API_KEY"] = KEY
    daemon.start()
    daemon.tool("environment", ENVIRONMENT)
    async with start(daemon) as claude:
        (text,) = texts(await result(claude, use("environment")))
        assert claude.model.keys == {KEY}  # the agent had it
        assert "PATH" in json.loads(text)
        assert KEY not in text
