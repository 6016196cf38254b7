"""Copilot calls tools through the adapter, and only its model is ours."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import select
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from copilot import CopilotClient, CopilotSession
from copilot._jsonrpc import JsonRpcError
from copilot.rpc import PermissionDecisionApproveForSession, PermissionDecisionReject
from copilot.session import (
    ModelCapabilitiesOverride,
    ModelSupportsOverride,
    PermissionHandler,
    PermissionInvocation,
)
from copilot.session_events import (
    AssistantMessageData,
    PermissionRequest,
    PermissionRequestCustomTool,
    SessionEvent,
    SessionInfoData,
    ToolExecutionCompleteData,
)
from copilot.tools import Tool, ToolInvocation, ToolResult
from tests.adapters.conftest import KIT
from tests.adapters.copilot.conftest import SECONDS_MAX, Copilot, Run, Start, adapted, lent
from tests.adapters.kit.kit import PICTURE
from tests.adapters.openai import Model, offered, results
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters.copilot.adapter import CUT_BYTES
from toolcell.client import Answer, Ask
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

LOOK_SECONDS = 0.01
LINE = "x" * 90


async def until(condition: Callable[[], object]) -> None:
    """Wait for what gives no sign when it comes."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(LOOK_SECONDS)


async def direct(copilot: Copilot, use: Use) -> str:
    """What the daemon says to the same call."""
    return (await copilot.adapter.session.call(use.tool, use.arguments)).text


def completed(events: list[SessionEvent], use: Use) -> ToolExecutionCompleteData:
    """What the session's timeline has of a use."""
    (data,) = (
        event.data
        for event in events
        if isinstance(event.data, ToolExecutionCompleteData) and event.data.tool_call_id == use.id
    )
    return data


# What the model is offered, and what it gets


async def test_the_model_is_offered_the_tools_with_their_own_schemas(
    kit: RunningDaemon, start: Start
) -> None:
    async with start(kit) as copilot:
        copilot.model.script.turns = [Turn("hello")]
        await copilot.turn()
        tools = offered(copilot.model.script.requests[0])
        catalog = copilot.adapter.session.catalog.tools
        assert {name for name in tools if name.startswith("kit_")} == set(catalog)
        for name, info in catalog.items():
            assert tools[name]["description"] == info.description
            assert tools[name]["parameters"] == info.input_schema
        assert "output_id" in tools["toolcell_read_output"]["parameters"]["properties"]


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(Use("kit_echo", {"text": "a ü\n\nb\t \U0001f600", "style": "plain"}), id="echo"),
        pytest.param(
            Use("kit_order", {"lines": [{"sku": "a", "count": 2}, {"sku": "b"}], "side": "buy"}),
            id="order",
            marks=pytest.mark.nightly,
        ),
        pytest.param(Use("kit_long", {"lines": 190}), id="long", marks=pytest.mark.nightly),
    ],
)
async def test_the_model_reads_byte_for_byte_what_the_daemon_gave(
    kit: RunningDaemon, start: Start, use: Use
) -> None:
    async with start(kit) as copilot:
        (shown,) = await copilot.use(use)
        assert shown == await direct(copilot, use)
        assert shown


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (
            Use("kit_order", {"lines": [{"count": "many"}], "side": "hold"}),
            "3 arguments are wrong, the tool did not run.",
        ),
        (Use("kit_fails", {"why": "the printer is on fire"}), "It did not work: the printer is on fire"),
    ],
    ids=["wrong arguments", "tool error"],
)
async def test_what_went_wrong_is_a_failure_that_the_model_reads(
    kit: RunningDaemon, start: Start, use: Use, says: str
) -> None:
    events: list[SessionEvent] = []
    async with start(kit, on_event=events.append) as copilot:
        (shown,) = await copilot.use(use)
        assert says in shown
        assert shown == await direct(copilot, use)
    error = completed(events, use).error
    assert error is not None
    assert error.code == "failure"


async def test_a_picture_is_shown_to_a_model_that_sees(kit: RunningDaemon, start: Start) -> None:
    sees = ModelCapabilitiesOverride(supports=ModelSupportsOverride(vision=True))
    async with start(kit, model_capabilities=sees) as copilot:
        (shown,) = await copilot.use(Use("kit_picture"))
        assert shown == f"[image: image/png, {len(PICTURE)} bytes]"
        assert f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}" in json.dumps(
            copilot.model.script.requests[-1]
        )


async def test_a_long_output_is_cut_before_copilot_does_and_can_be_read_on(
    kit: RunningDaemon, start: Start
) -> None:
    async with start(kit) as copilot:
        (shown,) = await copilot.use(Use("kit_long", {"lines": 500}))
        whole = "\n".join(f"{n:08d} {LINE}" for n in range(500))
        assert len(shown.encode()) < CUT_BYTES
        assert shown.startswith(whole[:5000])
        found = re.search(r'toolcell_read_output\(output_id="([^"]+)", start=0\)', shown)
        assert found is not None
        read, end = "", 0
        while end < len(whole):
            (more,) = await copilot.use(Use("toolcell_read_output", {"output_id": found[1], "start": end}))
            assert len(more.encode()) < CUT_BYTES
            head, _, text = more.partition("\n")
            assert head == f"[bytes {end} to {end + len(text) - 1}; the next: start={end + len(text)}]"
            read, end = read + text, end + len(text)
        assert read == whole


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(Use("kit_echo", {"text": "ü" * 40_000}), id="wide characters"),
        pytest.param(Use("kit_fails", {"why": "x" * 40_000}), id="error", marks=pytest.mark.nightly),
        pytest.param(Use("kit_fails", {"why": "x\n" * 40_000}), id="error of many lines"),
        pytest.param(
            Use("kit_order", {"lines": [{"sku": "a", "count": "x" * 40_000}], "side": "x" * 40_000}),
            id="wrong arguments",
            marks=pytest.mark.nightly,
        ),
    ],
)
async def test_no_text_is_so_long_that_copilot_cuts_it(kit: RunningDaemon, start: Start, use: Use) -> None:
    async with start(kit) as copilot:
        (shown,) = await copilot.use(use)
        assert len(shown.encode()) <= CUT_BYTES
        assert "Output too large" not in shown


async def test_what_copilot_cuts_is_what_the_limit_was_made_for(kit: RunningDaemon, start: Start) -> None:
    async def run(invocation: ToolInvocation) -> ToolResult:
        return ToolResult("x" * invocation.arguments["bytes"])

    fits, over = Use("raw", {"bytes": CUT_BYTES}), Use("raw", {"bytes": CUT_BYTES + 1})
    raw = Tool(
        "raw", "As long as you like.", run, {"type": "object", "properties": {"bytes": {"type": "integer"}}}
    )
    async with start(kit, tools=[raw]) as copilot:
        shown = await copilot.use(fits, over)
        assert shown[0] == "x" * CUT_BYTES
        assert shown[1].startswith("Output too large")


async def test_progress_is_in_the_timeline_and_not_in_the_conversation(
    kit: RunningDaemon, start: Start
) -> None:
    events: list[SessionEvent] = []
    async with start(kit, on_event=events.append) as copilot:
        assert await copilot.use(Use("kit_steps", {"count": 3})) == ["3 steps"]
        said = [event for event in events if isinstance(event.data, SessionInfoData)]
        lines = [event.data.message for event in said if isinstance(event.data, SessionInfoData)]
        # A step that comes while the one before it waits to be sent takes its place.
        assert lines[-1] == "kit_steps: 3/3 step 3"
        assert lines == sorted({f"kit_steps: {n}/3 step {n}" for n in (1, 2, 3)} & {*lines})
        assert all(event.ephemeral for event in said)
        assert "step 2" not in json.dumps(copilot.model.script.requests[-1])


GROWS = """
import time
from toolcell import ToolContext, tool

@tool
def grows(context: ToolContext) -> str:
    for number in range(10):
        context.update(f"first\\nline {number}\\n")
        time.sleep(0.1)  # mostly longer than what is joined into one update
    return "grown"
"""


async def test_a_partial_result_is_a_line_in_the_timeline_and_not_one_for_each_update(
    kit: RunningDaemon, start: Start
) -> None:
    file = kit.tool("grows", GROWS)
    try:
        events: list[SessionEvent] = []
        async with start(kit, on_event=events.append) as copilot:
            assert await copilot.use(Use("grows", {})) == ["grown"]
            lines = [event.data.message for event in events if isinstance(event.data, SessionInfoData)]
            assert re.fullmatch(r"grows: line \d", lines[0])
            assert len(lines) < 10
            assert lines[0].removeprefix("grows: ") not in json.dumps(copilot.model.script.requests[-1])
    finally:
        file.unlink()


async def test_calls_of_one_message_run_side_by_side(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as copilot:
        one, other = Use("kit_waits", {"name": "one"}), Use("kit_waits", {"name": "other"})
        await copilot.begin(one, other)
        await until((kit.project / "one.there").exists)
        await until((kit.project / "other.there").exists)
        await copilot.session.abort()
        await until((kit.project / "one.stopped").exists)
        await until((kit.project / "other.stopped").exists)
        assert await copilot.use(Use("kit_echo", {"text": "a"}), Use("kit_echo", {"text": "b"})) == ["a", "b"]


async def test_a_first_turn_logs_no_warning_of_the_sdk(
    kit: RunningDaemon, start_alone: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK tries a method that the program lacks, and has another way; other failures are logged as before."""
    async with start_alone(kit) as copilot:
        assert await copilot.use(Use("kit_echo", {"text": "a"})) == ["a"]
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    other = logging.getLogger("copilot._jsonrpc")
    other.warning("failed", exc_info=JsonRpcError(-32601, "no such"), extra={"method": "session.send"})
    other.warning("failed", exc_info=JsonRpcError(-32603, "broken"), extra={"method": "session.sendAndWait"})
    assert [record.getMessage() for record in caplog.records if record.name == other.name] == ["failed"] * 2


# Questions


class Person:
    """Decides as a test wants, and remembers what was asked."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.asked: list[PermissionRequestCustomTool] = []
        self.sessions: list[str] = []

    async def decide(self, request: PermissionRequest, invocation: PermissionInvocation) -> Any:
        assert isinstance(request, PermissionRequestCustomTool)
        if "question" not in (request.args or {}):  # whether the tool may run at all
            return PermissionHandler.approve_all(request, invocation)
        self.asked.append(request)
        self.sessions.append(invocation["session_id"])
        return self.decision


async def test_a_question_of_a_tool_goes_to_the_handler_of_permissions(
    kit: RunningDaemon, start: Start
) -> None:
    person = Person(PermissionHandler.approve_all(PermissionRequestCustomTool("", ""), {"session_id": ""}))
    async with start(kit, on_permission_request=person.decide) as copilot:
        use = Use("kit_asks", {"path": "a.txt"})
        assert await copilot.use(use) == ["wrote a.txt"]
        (asked,) = person.asked
        assert (asked.tool_name, asked.tool_description) == ("kit_asks", "Write a.txt?")
        assert asked.tool_call_id == use.id
        assert asked.args == {
            "question": "Write a.txt?",
            "permission": "write",
            "patterns": ["a.txt"],
            "always": ["a.txt"],
            "details": None,
        }
        assert person.sessions == [copilot.session.session_id]
        await copilot.use(Use("kit_asks", {"path": "a.txt"}))
        assert len(person.asked) == 2


async def test_callbacks_that_raise_are_the_tools_to_read_and_end_nothing(
    kit: RunningDaemon, start: Start
) -> None:
    async def dialog(question: object) -> bool:
        raise RuntimeError("no screen")

    def heard(event: SessionEvent) -> None:
        raise RuntimeError("no window")

    async with start(kit, ask=dialog, on_event=heard) as copilot:
        (asked,) = await copilot.use(Use("kit_asks", {"path": "b.txt"}))
        assert "the agent could not ask: RuntimeError: no screen" in asked
        assert await copilot.use(Use("kit_steps", {"count": 2})) == ["2 steps"]


async def test_two_programs_in_one_process_do_not_stop_each_others_tools(
    kit: RunningDaemon, start: Start, start_alone: Start
) -> None:
    async with start(kit) as one, start_alone(kit) as two:
        uses = [Use("kit_waits", {"name": name}) for name in ("of-one", "of-two")]
        for copilot, use in zip((one, two), uses, strict=True):
            await copilot.begin(use)
            await until((kit.project / f"{use.arguments['name']}.there").exists)
        await one.session.abort()
        await until((kit.project / "of-one.stopped").exists)
        assert len(two.adapter.session.calls) == 1
        assert not (kit.project / "of-two.stopped").exists()
        await two.session.abort()
        await until((kit.project / "of-two.stopped").exists)


async def test_an_approval_for_the_session_is_for_always(kit: RunningDaemon, start: Start) -> None:
    person = Person(PermissionDecisionApproveForSession())
    async with start(kit, on_permission_request=person.decide) as copilot:
        assert await copilot.use(Use("kit_asks", {"path": "b.txt"})) == ["wrote b.txt"]
        assert await copilot.use(Use("kit_asks", {"path": "b.txt"})) == ["wrote b.txt"]
        assert len(person.asked) == 1


async def test_a_question_that_is_denied_is_read_by_the_model(kit: RunningDaemon, start: Start) -> None:
    person = Person(PermissionDecisionReject())
    events: list[SessionEvent] = []
    async with start(kit, on_permission_request=person.decide, on_event=events.append) as copilot:
        use = Use("kit_asks", {"path": "c.txt"})
        (shown,) = await copilot.use(use)
        assert "Denied: Write c.txt?" in shown
        assert copilot.model.script.turns == []  # the turn went on
    error = completed(events, use).error
    assert error is not None
    assert error.code == "denied"


SAYS_WHY = """
from toolcell import Denied, ToolContext, tool

@tool
async def why(context: ToolContext) -> str:
    try:
        await context.ask("Deploy?")
    except Denied as denied:
        return f"The tool was told: {denied}"
    return "deployed"
"""


async def test_what_a_user_says_with_a_rejection_reaches_the_tool(kit: RunningDaemon, start: Start) -> None:
    kit.tool("says", SAYS_WHY)
    person = Person(PermissionDecisionReject(feedback="not on a Friday"))
    async with start(kit, on_permission_request=person.decide) as copilot:
        told, shown = await copilot.use(Use("says_why"), Use("kit_asks", {"path": "c.txt"}))
        assert told == "The tool was told: the user refused: not on a Friday"
        assert "the user refused: not on a Friday" in shown  # a tool that does not catch it


@pytest.mark.parametrize(
    ("answer", "shown"), [("always", "wrote d.txt"), (True, "wrote d.txt"), (False, "Denied: Write d.txt?")]
)
async def test_a_host_may_answer_questions_elsewhere(
    kit: RunningDaemon, start: Start, answer: bool | Literal["always"], shown: str
) -> None:
    asked: list[str] = []

    async def ask(ask: Ask) -> Answer:
        asked.append(ask.question)
        return answer

    async with start(kit, ask=ask) as copilot:
        assert shown in (await copilot.use(Use("kit_asks", {"path": "d.txt"})))[0]
        assert asked == ["Write d.txt?"]


FORM = """
from toolcell import ToolContext, tool

@tool
async def picks(context: ToolContext) -> str:
    ui = context.ui
    await ui.notify("Three questions.")
    return repr([await ui.select("Which?", ["a", "b"]), await ui.input("Name?", "Ada"), await ui.confirm("Sure?")])
"""


async def test_a_question_for_a_value_goes_to_the_handler_of_user_input(
    kit: RunningDaemon, start: Start
) -> None:
    kit.tool("form", FORM)
    asked: list[tuple[Any, str]] = []
    answers = ["b", "", "yes"]

    async def respond(request: Any, invocation: dict[str, str]) -> Any:
        asked.append((request, invocation["session_id"]))
        return {"answer": answers.pop(0), "wasFreeform": False}

    events: list[SessionEvent] = []
    async with start(kit, on_user_input_request=respond, on_event=events.append) as copilot:
        assert await copilot.use(Use("form_picks", {})) == ["['b', 'Ada', True]"]
        here = copilot.session.session_id
    assert asked == [
        ({"question": "form_picks: Which?", "choices": ["a", "b"], "allowFreeform": False}, here),
        ({"question": "form_picks: Name? [Ada]", "choices": [], "allowFreeform": True}, here),
        ({"question": "form_picks: Sure?", "choices": ["yes", "no"], "allowFreeform": False}, here),
    ]
    assert any(getattr(event.data, "message", "") == "form_picks: Three questions." for event in events)


STOPS = """
from toolcell import ToolContext, tool

@tool
async def stops(context: ToolContext) -> str:
    await context.abort("enough")
    await context.abort.wait()
    return "not shown"
"""


async def test_a_tool_can_abort_the_turn_that_called_it(kit: RunningDaemon, start: Start) -> None:
    kit.tool("all", STOPS)
    async with start(kit) as copilot:
        use = Use("all_stops", {})
        copilot.model.script.turns += [Turn(uses=(use,)), Turn(text="not reached")]
        with pytest.raises(RuntimeError, match="aborted before response completed"):
            await copilot.session.send_and_wait("go")
        assert [turn.text for turn in copilot.model.script.turns] == ["not reached"]
        copilot.model.script.turns.clear()
        assert await copilot.use(Use("kit_echo", {"text": "and on it goes"})) == ["and on it goes"]


async def test_without_such_a_handler_a_question_for_a_value_is_refused(
    kit: RunningDaemon, start: Start
) -> None:
    kit.tool("form", FORM)
    async with start(kit) as copilot:
        (shown,) = await copilot.use(Use("form_picks", {}))
        assert "without `on_user_input_request`" in shown


async def test_without_a_handler_only_tools_that_change_nothing_run(kit: RunningDaemon, start: Start) -> None:
    async with start(kit, on_permission_request=None) as copilot:
        echo, order = await copilot.use(
            Use("kit_echo", {"text": "a"}), Use("kit_order", {"lines": [], "side": "buy"})
        )
        assert echo == "a"
        assert "Permission denied" in order


# Abort, and other ends


def busy(daemon: RunningDaemon) -> list[int]:
    """The processes that run calls."""
    request, answer = operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    workers = daemon.ask("Operator/ListWorkers", request, answer).workers
    return [worker.pid for worker in workers if worker.call_id]


async def test_an_abort_ends_a_tool_that_listens(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as copilot:
        await copilot.begin(Use("kit_waits", {"name": "listens"}))
        await until((kit.project / "listens.there").exists)
        (pid,) = busy(kit)
        process = os.pidfd_open(pid)
        try:
            await copilot.session.abort()
            await until((kit.project / "listens.stopped").exists)
            await until(lambda: ended(process))
        finally:
            os.close(process)
        await until(lambda: kit.status().calls == 0)
        assert await copilot.use(Use("kit_echo", {"text": "still here"})) == ["still here"]


async def test_an_abort_ends_a_tool_that_does_not_listen(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as copilot:
        await copilot.begin(Use("kit_deaf", {"name": "deaf"}))
        await until((kit.project / "deaf.there").exists)
        (pid,) = busy(kit)
        process = os.pidfd_open(pid)
        try:
            await copilot.session.abort()
            await until(lambda: ended(process))
        finally:
            os.close(process)
        await until(lambda: kit.status().calls == 0)
        assert await copilot.use(Use("kit_echo", {"text": "still here"})) == ["still here"]


def ended(process: int) -> bool:
    """Whether the process behind a descriptor is gone."""
    return bool(select.select([process], [], [], 0)[0])


async def test_a_session_that_is_left_ends_its_tools(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as copilot:
        await copilot.begin(Use("kit_waits", {"name": "parted"}))
        await until((kit.project / "parted.there").exists)
        await copilot.session.disconnect()
        await until((kit.project / "parted.stopped").exists)
        await until(lambda: kit.status().calls == 0)
        await until(lambda: not copilot.adapter._conversations)  # pyright: ignore[reportPrivateUsage]


async def test_a_program_that_dies_ends_its_tools(kit: RunningDaemon, start_alone: Start) -> None:
    with suppress(ExceptionGroup):  # the SDK cannot take its leave of a program that is dead
        async with start_alone(kit) as copilot:
            await copilot.begin(Use("kit_waits", {"name": "orphan"}))
            await until((kit.project / "orphan.there").exists)
            copilot.client._process.kill()  # pyright: ignore[reportPrivateUsage]
            await until((kit.project / "orphan.stopped").exists)
    await until(lambda: kit.status().calls == 0)
    assert (kit.project / "orphan.stopped").exists()


async def test_a_tool_that_takes_too_long_is_a_time_out(kit: RunningDaemon, start: Start) -> None:
    events: list[SessionEvent] = []
    async with start(kit, on_event=events.append) as copilot:
        use = Use("kit_overdue")
        (shown,) = await copilot.use(use)
        assert re.search(r"1\.\d s; it stopped by itself", shown)
    error = completed(events, use).error
    assert error is not None
    assert error.code == "timeout"


async def test_after_a_crash_the_next_call_works(kit: RunningDaemon, start: Start) -> None:
    async with start(kit) as copilot:
        crash, echo = await copilot.use(Use("kit_crash")), await copilot.use(Use("kit_echo", {"text": "a"}))
        assert "its process was ended by SIGSEGV" in crash[0]
        assert echo == ["a"]


async def test_what_breaks_in_the_adapter_is_read_by_the_model(
    kit: RunningDaemon, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a wheel came off")

    async with start(kit) as copilot:
        monkeypatch.setattr(copilot.adapter, "outcome", broken)
        (shown,) = await copilot.use(Use("kit_echo", {"text": "a"}))
        assert "kit_echo failed in the adapter: RuntimeError: a wheel came off" in shown


# Who calls


async def whoami(copilot: Copilot) -> dict[str, str]:
    (shown,) = await copilot.use(Use("kit_whoami"))
    who: dict[str, str] = json.loads(shown)
    return who


def messages(events: list[SessionEvent], use: Use) -> list[tuple[str, str | None]]:
    """The messages that asked for a use, and the sub-agents that said them."""
    return [
        (event.data.message_id, event.agent_id)
        for event in events
        if isinstance(event.data, AssistantMessageData)
        and any(request.tool_call_id == use.id for request in event.data.tool_requests or ())
    ]


async def test_a_tool_knows_who_calls(kit: RunningDaemon, start: Start) -> None:
    events: list[SessionEvent] = []
    async with start(kit, on_event=events.append) as copilot:
        use = Use("kit_whoami")
        who = json.loads((await copilot.use(use))[0])
        ((message_id, _),) = messages(events, use)
        assert who.pop("call_id")
        assert who == {
            "session_id": copilot.session.session_id,
            "message_id": message_id,
            "agent": "copilot",
            "agent_name": "main",
            "directory": str(kit.project),
        }


async def test_a_tool_knows_which_sub_agent_calls(kit: RunningDaemon, start: Start) -> None:
    events: list[SessionEvent] = []
    scout = {"name": "scout", "display_name": "Scout", "description": "Scouts.", "prompt": "You scout."}
    async with start(kit, on_event=events.append, custom_agents=[scout]) as copilot:
        use = Use("kit_whoami")
        task = {"agent_type": "scout", "prompt": "go", "name": "a", "description": "look", "mode": "sync"}
        copilot.model.script.turns = [
            Turn(uses=(Use("task", task),)),
            Turn(uses=(use,)),
            Turn("the scout is done"),
            Turn("done"),
        ]
        await copilot.turn()
        who = next(
            json.loads(found[use.id])
            for request in copilot.model.script.requests
            if use.id in (found := results(request))
        )
        ((message_id, agent_id),) = messages(events, use)
        assert agent_id
        assert who["agent_name"] == "scout"
        assert who["message_id"] == message_id
        assert who["session_id"] == copilot.session.session_id
        assert who["agent"] == "copilot"
        assert who["directory"] == str(kit.project)
        assert (await whoami(copilot))["agent_name"] == "main"


async def test_models_that_count_their_calls_from_nought_get_no_old_answers(
    kit: RunningDaemon, start: Start, options: dict[str, Any]
) -> None:
    async with start(kit) as copilot:
        first = await copilot.adapter.create_session(copilot.client, **options)
        for session in (copilot.session, first):
            copilot.model.script.uses(Use("kit_whoami", {}, "functions.kit_whoami:0"))
            await session.send_and_wait("go", timeout=SECONDS_MAX)
            (shown,) = results(copilot.model.script.requests[-1]).values()
            assert json.loads(shown)["session_id"] == session.session_id


async def test_a_session_elsewhere_is_not_made(
    kit: RunningDaemon, start: Start, options: dict[str, Any], tmp_path: Path
) -> None:
    async with start(kit) as copilot:
        with pytest.raises(ValueError, match="connect an adapter for that directory"):
            await copilot.adapter.create_session(copilot.client, **options, working_directory=str(tmp_path))


async def test_a_session_that_went_elsewhere_is_refused(
    kit: RunningDaemon, options: dict[str, Any], tmp_path: Path, start: Start
) -> None:
    async with start(kit) as copilot:
        adapter = copilot.adapter
        session = await copilot.client.create_session(
            **options, tools=adapter.tools(), working_directory=str(tmp_path)
        )
        adapter.attach(session)
        copilot.session = session
        (shown,) = await copilot.use(Use("kit_echo", {"text": "a"}))
        assert "kit_echo was not run: it belongs to " in shown
        assert str(tmp_path) in shown


async def test_a_host_that_makes_its_sessions_itself_uses_the_parts(
    kit: RunningDaemon, start: Start, options: dict[str, Any]
) -> None:
    person = Person(PermissionHandler.approve_all(PermissionRequestCustomTool("", ""), {"session_id": ""}))
    options["on_permission_request"] = person.decide
    async with start(kit) as copilot:
        adapter = copilot.adapter
        session = await copilot.client.create_session(
            **options, tools=adapter.tools(), working_directory=adapter.directory
        )
        adapter.attach(session, on_permission_request=person.decide)
        copilot.session = session
        who = await whoami(copilot)
        assert who["session_id"] == session.session_id
        assert who["message_id"] not in ("", who["call_id"])
        assert await copilot.use(Use("kit_asks", {"path": "e.txt"})) == ["wrote e.txt"]
        assert len(person.asked) == 1


async def test_tools_run_without_the_events_too(
    kit: RunningDaemon, start: Start, options: dict[str, Any]
) -> None:
    async with start(kit) as copilot:
        adapter = copilot.adapter
        copilot.session = await copilot.client.create_session(
            **options, tools=adapter.tools(), working_directory=adapter.directory
        )
        use = Use("kit_whoami")
        who = json.loads((await copilot.use(use))[0])
        assert (who["session_id"], who["agent_name"]) == (copilot.session.session_id, "main")
        assert who["message_id"] == use.id
        assert await copilot.use(Use("kit_asks", {"path": "f.txt"})) != ["wrote f.txt"]


# Changes


@pytest.fixture
def own(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    """A daemon whose tools a test may change."""
    daemon = make_daemon()
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    daemon.start()
    return daemon


async def has(session: CopilotSession, tool: str, wanted: bool = True) -> None:
    """Wait until the runtime has accepted a set of tools with that one, or without it."""
    handler = session._get_tool_handler  # pyright: ignore[reportPrivateUsage]
    await until(lambda: (handler(tool) is not None) is wanted)


async def test_a_daemon_that_is_started_again_serves_the_next_call(own: RunningDaemon, start: Start) -> None:
    async with start(own) as copilot:
        assert await copilot.use(Use("kit_echo", {"text": "before"})) == ["before"]
        assert own.stop() == 0
        own.start()
        assert await copilot.use(Use("kit_echo", {"text": "after"})) == ["after"]


NEW = """
from toolcell import tool

@tool(read_only=True)
def new(text: str) -> str:
    "Say something new."
    return f"{NUMBER}: {text}"
"""


async def test_a_session_takes_up_tools_while_it_lives(own: RunningDaemon, start: Start) -> None:
    async def run(invocation: ToolInvocation) -> ToolResult:
        return ToolResult("mine")

    mine = Tool("mine", "The host's own.", run, {"type": "object", "properties": {}}, skip_permission=True)
    async with start(own, tools=[mine]) as copilot:
        assert "new" not in copilot.adapter.session.catalog.tools
        path = own.tool("new", NEW.replace("NUMBER", "1"))
        await has(copilot.session, "new")
        assert await copilot.use(Use("new", {"text": "a"}), Use("mine")) == ["1: a", "mine"]
        assert "new" in offered(copilot.model.script.requests[0])
        path.unlink()
        await has(copilot.session, "new", False)
        await copilot.use(Use("kit_echo", {"text": "a"}))
        assert "new" not in offered(copilot.model.script.requests[-1])
        assert "mine" in offered(copilot.model.script.requests[-1])


async def test_a_call_of_a_tool_that_has_just_gone_is_answered(own: RunningDaemon, start: Start) -> None:
    path = own.tool("new", NEW.replace("NUMBER", "1"))
    async with start(own) as copilot:
        use = Use("new", {"text": "a"})
        copilot.model.script.uses(use)
        copilot.model.gate.clear()
        await copilot.session.send("go")
        await until(lambda: copilot.model.script.requests)  # the model thinks, and has seen the tool
        path.unlink()
        await copilot.adapter.session.reload()
        await has(copilot.session, "new", False)
        copilot.model.gate.set()
        await until(lambda: len(copilot.model.script.requests) == 2)
        (shown,) = copilot.shown(use)
        assert "new was not run: it has been removed." in shown
        assert await copilot.use(Use("kit_echo", {"text": "a"})) == ["a"]


async def test_a_session_that_is_resumed_has_the_tools_of_now(
    own: RunningDaemon, run: Run, start_alone: Start, options: dict[str, Any]
) -> None:
    own.tool("new", NEW.replace("NUMBER", "1"))
    async with start_alone(own) as copilot:
        assert await copilot.use(Use("new", {"text": "a"})) == ["1: a"]
        session_id = copilot.session.session_id
        await copilot.session.disconnect()
        own.tool("new", NEW.replace("NUMBER", "2").replace("Say something", "Say something quite"))
        own.tool("newer", NEW.replace("NUMBER", "3").replace("def new(", "def newer("))
        copilot.session = await copilot.adapter.resume_session(copilot.client, session_id, **options)
        assert copilot.session.session_id == session_id
        assert await copilot.use(Use("new", {"text": "a"}), Use("newer", {"text": "a"})) == ["2: a", "3: a"]
        request = copilot.model.script.requests[-1]
        assert offered(request)["new"]["description"] == "Say something quite new."
        assert "1: a" in results(request).values()  # it is the same conversation
    own.tool("newer", NEW.replace("NUMBER", "4").replace("def new(", "def newer("))
    async with adapted(own) as adapter, run() as client:
        session = await adapter.resume_session(client, session_id, **options)
        again = Copilot(client, adapter, session, copilot.model)
        assert await again.use(Use("newer", {"text": "a"})) == ["4: a"]
        assert (await whoami(again))["session_id"] == session_id


async def test_a_tool_may_be_called_like_one_of_copilots(
    own: RunningDaemon, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    own.tool("view", NEW.replace("NUMBER", "4").replace("def new(", "def view("))
    async with start(own) as copilot:
        assert await copilot.use(Use("toolcell_view", {"text": "a"})) == ["4: a"]
        shown = offered(copilot.model.script.requests[-1])
        assert shown["view"]["description"] != shown["toolcell_view"]["description"]
        (problem,) = copilot.adapter.problems
        assert (problem.tool, problem.reason) == ("view", "shadowed")
        assert "toolcell config set tool.view.overrides_builtin true" in problem.message
        assert "copilot has a tool view of its own, which is kept" in caplog.text
    own.configure("[tool.view]\noverrides_builtin = true\n")
    async with start(own) as copilot:
        assert await copilot.use(Use("view", {"text": "a"})) == ["4: a"]
        assert copilot.adapter.problems == ()


async def test_an_adapter_that_leaves_aborts_what_runs(
    kit: RunningDaemon, program: CopilotClient, options: dict[str, Any], model: Model
) -> None:
    async with lent(program) as client:
        async with adapted(kit) as adapter:
            copilot = Copilot(client, adapter, await adapter.create_session(client, **options), model)
            await copilot.begin(Use("kit_waits", {"name": "left"}))
            await until((kit.project / "left.there").exists)
        assert (kit.project / "left.stopped").exists()
        assert kit.status().calls == 0


async def test_arguments_that_are_no_object_are_refused(kit: RunningDaemon) -> None:
    async with adapted(kit) as adapter:
        (echo,) = (tool for tool in adapter.tools() if tool.name == "kit_echo")
        assert echo.handler is not None
        said = echo.handler(
            ToolInvocation(session_id="s", tool_call_id="1", tool_name="kit_echo", arguments=[1])
        )
        assert not isinstance(said, ToolResult)
        result = await said
        assert result.result_type == "failure"
        assert "kit_echo was not run: its arguments" in result.text_result_for_llm
