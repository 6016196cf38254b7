"""Hooks before and after calls, through a real daemon; each of them runs in a cell of its own."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell.client import Answer, Ask, Kind, Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

TOOLS = """
import os
from toolcell import ToolError, ToolResult, tool

@tool(name="write")
def write(path: str, text: str = "") -> str:
    return f"wrote {text!r} to {path}"

@tool(name="person")
def person() -> ToolResult:
    return ToolResult("mail ada@example.com", details={"mail": "ada@example.com"}, metadata={"m": "ada@example.com"})

@tool(name="typed")
def typed(mail: str) -> dict[str, str]:
    return {"mail": mail}

@tool(name="fail")
def fail() -> str:
    raise ToolError("no ada@example.com here")

@tool(name="die")
def die() -> str:
    os._exit(7)

@tool(name="lines", output_lines=5)
def lines() -> str:
    return "ada@example.com\\n" * 50
"""

GUARD = """
from toolcell import ToolError, tool

@tool
def before(call: dict) -> dict | None:
    path = call["arguments"].get("path", "")
    if path.startswith("/etc"):
        raise ToolError(f"{call['tool']} may not write to {path}")
    return {"arguments": {**call["arguments"], "path": path.replace("~", "/home")}}
"""

SCRUB = """
import json
from toolcell import tool

@tool
def after(call: dict, outcome: dict) -> dict | None:
    if "ada@" not in json.dumps(outcome):
        return None
    def scrub(value):
        return json.loads(json.dumps(value).replace("ada@example.com", "(mail)"))
    return {"outcome": {key: scrub(outcome[key]) for key in ("content", "details", "metadata", "message")}}
"""


def hook(daemon: RunningDaemon, name: str, source: str, more: str = "") -> str:
    """Write the file of a hook; its lines of configuration."""
    directory = daemon.directory / "hooks"
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.py").write_text(source)
    return f'\n[hooks.{name}]\nfile = "{directory / name}.py"\n{more}'


@pytest.fixture
def tools(daemon: RunningDaemon) -> RunningDaemon:
    daemon.tool("all", TOOLS)
    return daemon


def denied(outcome: Outcome) -> str:
    assert (outcome.kind, outcome.cause, outcome.ran) == (Kind.denied, "hook", False), outcome
    return outcome.message


def withheld(outcome: Outcome) -> str:
    assert (outcome.kind, outcome.cause, outcome.details) == (Kind.tool_error, "hook", None), outcome
    return outcome.message


async def test_a_hook_before_a_call_refuses_it_or_changes_its_arguments(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "guard", GUARD, 'tools = ["wr*"]\n'))
    async with tools.connect() as session:
        outcome = await session.call("write", {"path": "/etc/passwd"})
        assert denied(outcome) == "the hook guard refused it: write may not write to /etc/passwd"
        assert (await session.call("write", {"path": "~/x", "text": "é"})).text == "wrote 'é' to /home/x"
        assert (await session.call("person")).text == "mail ada@example.com"  # not its tool


async def test_changed_arguments_are_validated_as_any_others(tools: RunningDaemon) -> None:
    source = GUARD.replace('path.replace("~", "/home")', "7")
    tools.configure(hook(tools, "guard", source, 'tools = ["wr*"]\n'))
    async with tools.connect() as session:
        outcome = await session.call("write", {"path": "x"})
        assert (outcome.kind, outcome.ran) == (Kind.invalid_arguments, False)


async def test_a_structured_value_that_a_hook_has_changed_is_none(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "scrub", SCRUB))
    async with tools.connect() as session:
        same = await session.call("typed", {"mail": "none"})
        assert (same.details, same.structured) == ({"mail": "none"}, True)
        changed = await session.call("typed", {"mail": "ada@example.com"})
        assert (changed.details, changed.structured) == ({"mail": "(mail)"}, False)


@pytest.mark.slow
async def test_hooks_run_in_order_and_the_first_refusal_counts(tools: RunningDaemon) -> None:
    text = "from toolcell import tool\n\n@tool\ndef before(call: dict) -> dict:\n"
    add = text + '    return {"arguments": {"path": call["arguments"]["path"] + "%s"}}\n'
    config = hook(tools, "one", add % "1") + hook(tools, "two", add % "2")
    config += hook(tools, "three", text + '    raise ValueError(call["arguments"]["path"])\n')
    config += hook(tools, "four", text + '    raise ValueError("never")\n')
    tools.configure(config)
    async with tools.connect() as session:
        message = denied(await session.call("write", {"path": "p"}))
        assert "three refused it" in message
        assert "p12" in message
        assert "never" not in message


async def test_a_hook_after_a_call_rewrites_all_that_the_model_reads(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "scrub", SCRUB))
    async with tools.connect() as session:
        outcome = await session.call("person")
        assert (outcome.kind, outcome.text, outcome.details) == (Kind.ok, "mail (mail)", {"mail": "(mail)"})
        assert "ada@" not in repr(outcome)
        outcome = await session.call("fail")
        assert outcome.kind is Kind.tool_error
        assert "no (mail) here" in outcome.message
        assert "ada@" not in repr(outcome)
        assert (await session.call("write", {"path": "x"})).text == "wrote '' to x"


async def test_of_a_truncated_output_nothing_is_left_that_a_hook_has_not_seen(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "scrub", SCRUB))
    outputs = tools.state / "outputs"
    before = [*outputs.rglob("*")]  # of other files of tests
    async with tools.connect() as session:
        outcome = await session.call("lines")
        assert "(mail)" in outcome.text
        assert outcome.output is None
        assert [path for path in outputs.rglob("*") if path not in before] == []


STATUS = """
import json
from toolcell import tool

@tool
def after(call: dict, outcome: dict) -> dict:
    if call["tool"] == "fail":
        return {"outcome": {"status": "completed", "text": "it is fine"}}
    seen = {"status": outcome["status"], "kind": outcome["kind"], "arguments": call["arguments"]}
    if call["tool"] == "die":
        return {"outcome": {"message": json.dumps(seen)}}
    return {"outcome": {"status": "error", "text": json.dumps(seen)}}
"""


async def test_a_hook_knows_the_status_and_may_change_it(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "status", STATUS))
    async with tools.connect() as session:
        outcome = await session.call("write", {"path": "x"})
        assert (outcome.kind, outcome.cause) == (Kind.tool_error, "hook")
        seen = {"status": "completed", "kind": "ok", "arguments": {"path": "x"}}
        assert json.loads(outcome.text) == seen
        outcome = await session.call("fail")
        assert (outcome.kind, outcome.text, outcome.message) == (Kind.ok, "it is fine", "")
        outcome = await session.call("die")
        assert outcome.kind is Kind.crashed
        assert json.loads(outcome.message)["status"] == "error"


IMPATIENT = 'timeout = "500ms"\n'
"""For a hook that hangs alone: the first call of another one counts the start of a worker, which other tests may delay."""

HOSTILE_BEFORE = {
    "hangs": ("    import time; time.sleep(100)", "did not return within 0.5 s"),
    "dies": ("    import os; os._exit(3)", "its process ended: exit 3"),
    "raises": ("    1 / 0", "ZeroDivisionError"),
    "text": ('    return "allow"', "it returned a text"),
    "list": ("    return [1]", "something else than None"),
    "true": ("    return True", "something else than None"),
    "bare": ('    return {"path": "x"}', "something else than None"),
    "renames": ('    return {"tool": "person", "arguments": {}}', "something else than None"),
    "types": ('    return {"arguments": [1]}', "something else than None"),
    "huge": ('    return {"arguments": {"path": "x" * 5_000_000}}', "the most is 4194304"),
    "asks": (
        "    return context.wait(context.ask('x?'))",
        "asks a question, which only a call can do",
    ),
}


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE_BEFORE)
async def test_a_hook_that_misbehaves_before_a_call_refuses_it(tools: RunningDaemon, name: str) -> None:
    body, message = HOSTILE_BEFORE[name]
    head = "from toolcell import ToolContext, tool\n\n@tool\ndef before(call: dict, context: ToolContext):\n"
    tools.configure(hook(tools, name, head + body, IMPATIENT if name == "hangs" else ""))

    async def yes(_: Ask) -> Answer:
        return True

    async with tools.connect(ask=yes) as session:
        outcome = await session.call("write", {"path": "x"})
        assert f"the hook {name} " in denied(outcome)
        assert message in outcome.message


HOSTILE_AFTER = {
    "hangs": "    import time; time.sleep(100)",
    "dies": "    import os; os._exit(3)",
    "raises": '    raise ValueError("x")',
    "text": '    return "(mail)"',
    "kind": '    return {"outcome": {"kind": "ok"}}',
    "name": '    return {"tool": "other"}',
    "content": '    return {"outcome": {"content": [{"type": "text", "text": 7}]}}',
    "blocks": '    return {"outcome": {"content": "x"}}',
    "both": '    return {"outcome": {"content": [], "text": "x"}}',
    "status": '    return {"outcome": {"status": "fine"}}',
    "message": '    return {"outcome": {"message": 7}}',
    "metadata": '    return {"outcome": {"metadata": [1]}}',
    "huge": '    return {"outcome": {"text": "x" * 5_000_000}}',
}


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE_AFTER)
async def test_a_hook_that_misbehaves_after_a_call_withholds_its_result(
    tools: RunningDaemon, name: str
) -> None:
    head = "from toolcell import tool\n\n@tool\ndef after(call: dict, outcome: dict):\n"
    tools.configure(hook(tools, name, head + HOSTILE_AFTER[name], IMPATIENT if name == "hangs" else ""))
    async with tools.connect() as session:
        outcome = await session.call("person")
        assert f"the hook {name} " in withheld(outcome)
        assert outcome.ran
        assert "ada@" not in repr(outcome)


async def test_what_a_hook_returns_is_truncated_as_a_result(tools: RunningDaemon) -> None:
    source = '    return {"outcome": {"text": "x\\n" * 1000}}'
    head = "from toolcell import tool\n\n@tool\ndef after(call: dict, outcome: dict):\n"
    tools.configure(hook(tools, "long", head + source))
    async with tools.connect() as session:
        assert len((await session.call("lines")).text.splitlines()) < 10


async def test_a_completed_call_cannot_be_made_of_a_crash(tools: RunningDaemon) -> None:
    head = "from toolcell import tool\n\n@tool\ndef after(call: dict, outcome: dict):\n"
    tools.configure(hook(tools, "nice", head + '    return {"outcome": {"status": "completed"}}'))
    async with tools.connect() as session:
        outcome = await session.call("die")
        assert outcome.kind is Kind.crashed
        assert "the hook nice failed" in outcome.message


@pytest.mark.parametrize("source", ["def f(:", "x = 1\n", "raise ValueError('at import')\n", None])
async def test_a_hook_that_cannot_be_used_refuses_the_calls_of_its_tools(
    tools: RunningDaemon, source: str | None
) -> None:
    config = hook(tools, "broken", source or "", 'tools = ["wr*"]\n')
    if source is None:
        os.unlink(tools.directory / "hooks" / "broken.py")
    tools.configure(config)
    async with tools.connect() as session:
        message = denied(await session.call("write", {"path": "x"}))
        assert "broken.py" in message
        assert "toolcell reload" in message
        assert (await session.call("person")).text == "mail ada@example.com"


async def test_a_project_brings_no_hooks(tools: RunningDaemon) -> None:
    marker = tools.directory / "ran"
    source = f"open({str(marker)!r}, 'w')\n" + GUARD
    config = hook(tools, "theirs", source)
    (tools.project / ".toolcell" / "config.toml").write_text(config)
    async with tools.connect() as session:
        assert (await session.call("write", {"path": "/etc/x"})).text == "wrote '' to /etc/x"
        assert any("hooks" in problem.message for problem in session.catalog.problems)
    assert not marker.exists()


async def test_a_hook_runs_in_a_cell_that_writes_nothing(tools: RunningDaemon) -> None:
    marker = tools.project / "marker"
    source = f"""
from toolcell import tool

@tool
def before(call: dict):
    open({str(marker)!r}, "w")
"""
    text = tools.config.read_text().replace('sandbox = "roomy"', 'sandbox = "auto"')
    tools.config.write_text(text + hook(tools, "writes", source))
    tools.reload()
    async with tools.connect() as session:
        assert "writes refused it" in denied(await session.call("write", {"path": "x"}))
    assert not marker.exists()


async def test_a_person_is_asked_about_the_arguments_that_a_hook_has_left(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "guard", GUARD) + '\n[permissions]\n"write" = "ask"\n')
    asked: list[Any] = []

    async def yes(ask: Ask) -> Answer:
        asked.append(ask.question)
        return True

    async with tools.connect(ask=yes) as session:
        assert (await session.call("write", {"path": "~/x"})).text == "wrote '' to /home/x"
        denied(await session.call("write", {"path": "/etc/x"}))
    assert len(asked) == 1
    assert "/home/x" in asked[0]


async def test_a_call_is_stopped_while_its_hook_runs(tools: RunningDaemon) -> None:
    pipe = str(tools.directory / "pipe")
    os.mkfifo(pipe)
    source = f"""
import time
from toolcell import tool

@tool
def before(call: dict):
    with open({pipe!r}, "w") as file:
        file.write("here")
    time.sleep(100)
"""
    text = tools.config.read_text() + '\n[tool.hook_slow]\nsandbox = "none"\n'
    tools.config.write_text(text + hook(tools, "slow", source, 'timeout = "60s"\n'))
    tools.reload()
    async with tools.connect() as session:
        call = session.call("write", {"path": "x"})
        assert await asyncio.to_thread(_read, pipe) == "here"
        call.abort()
        outcome = await call
        assert (outcome.kind, outcome.ran) == (Kind.aborted, False)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


async def test_a_guard_sees_the_value_that_the_tool_gets_where_a_key_stands_twice(
    tools: RunningDaemon,
) -> None:
    tools.configure(hook(tools, "guard", GUARD))
    arguments = b'{"path": "/etc/x", "path": "/tmp/x", "text": "a", "text": "b"}'
    async with dialled(tools) as wire:
        call = pb.Call(call_id="c-1", tool="write", arguments=arguments)
        request = pb.CallToolRequest(call=call, directory=str(tools.project), agent="wire")
        rpc = wire.tools.CallTool(request, metadata=wire.agent)
        bodies = [answer.event.outcome.body async for answer in rpc]
    assert b"wrote 'b' to /tmp/x" in b"".join(bodies)


DEFINES = """
from toolcell import tool

@tool
def definition(tool: dict) -> dict | None:
    schema = tool["input_schema"]
    schema["properties"].pop("text", None)
    return {"tool": {"description": tool["name"].upper(), "input_schema": schema}}
"""


async def test_a_hook_changes_definitions_as_the_catalog_shows_them(tools: RunningDaemon) -> None:
    tools.configure(hook(tools, "defines", DEFINES, 'tools = ["wr*"]\n'))
    async with tools.connect() as session:
        info = session.catalog.tools["write"]
        assert info.description == "WRITE"
        assert set(info.input_schema["properties"]) == {"path"}
        assert session.catalog.tools["person"].description != "PERSON"
        assert session.catalog.problems == ()
        assert (await session.call("write", {"path": "x"})).text == "wrote '' to x"


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        '    return {"tool": {"name": "other"}}',
        '    return {"tool": {"description": 7}}',
        '    return {"tool": {"description": "x" * 10_000}}',
        '    return {"tool": {"input_schema": []}}',
        '    return {"tool": {"input_schema": {"type": "string"}}}',
        '    return {"other": {}}',
        "    return 'x'",
        "    return 1 / 0",
        "    import os; os._exit(3)",
        "    import time; time.sleep(100)",
    ],
)
async def test_a_hook_that_fails_leaves_definitions_as_they_are_and_a_problem_says_so(
    tools: RunningDaemon, body: str
) -> None:
    head = "from toolcell import tool as t\n\n@t\ndef definition(tool: dict):\n"
    tools.configure(hook(tools, "bad", head + body, IMPATIENT if "sleep" in body else ""))
    async with tools.connect() as session:
        await session.reload()
        assert set(session.catalog.tools) == {"write", "person", "typed", "fail", "die", "lines"}
        assert [problem.message for problem in session.catalog.problems if "the hook bad" in problem.message]
        assert (await session.call("write", {"path": "x"})).text == "wrote '' to x"
