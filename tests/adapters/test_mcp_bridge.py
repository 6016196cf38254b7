"""The real command `toolcell mcp` in front of a real daemon, with the MCP SDK's own client as the host.

Both eras of the protocol are spoken: a host that shakes hands first, as all did up to 2025-11-25, and one that says
everything with every request, as since 2026-07-28. What a host of the one can do, a host of the other can as well.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.shared.memory import create_client_server_memory_streams
from tests.daemons import RunningDaemon

from toolcell._extras import install_command
from toolcell.adapters.mcp import HostContext, HostLink, tool_call
from toolcell.adapters.mcp.bridge import serve
from toolcell.adapters.mcp.host import session as host_session
from toolcell.adapters.mcp.host.session import HostSession
from toolcell.adapters.read_output import HANDLE_BYTES_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("era")]

SECONDS_MAX = 20
"""For what takes a second at most; other tests may have the processors."""

NAME, SLEEP = f"tc-br-{os.getpid()}", f"32.{os.getpid()}"
"""Of processes that are to be stopped, so that they are told from those of another run."""
TOOLS = '''
import asyncio, contextlib, ctypes, os, signal, subprocess, time
from pathlib import Path
from toolcell import File, Image, Link, ToolContext, ToolError, ToolResult, tool

HERE = Path(__file__).parent.parent.parent

def until(name):
    deadline = time.monotonic() + 30
    while not (HERE / name).exists() and time.monotonic() < deadline:
        time.sleep(0.005)

@tool(title="Say it again", read_only=True, idempotent=True)
def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    return text * times

@tool
def nothing() -> None:
    """Nothing at all."""

@tool(destructive=True)
def fail() -> None:
    """Fail."""
    raise ToolError("the printer is on fire")

@tool
def picture() -> ToolResult:
    """A picture, and where there are more."""
    return ToolResult(["look", Image(data=b"\\x89PNG\\r\\n\\x1a\\n"), Link("https://example.org/more", name="more")])

@tool
def files() -> list[File]:
    """Files that are no pictures."""
    return [File(data=b"%PDF", name="a b.pdf"), File(data=b"ID3", mime_type="audio/mpeg")]

@tool
def long(width: int = 0) -> str:
    """Many lines."""
    return "\\n".join(f"line {number}".ljust(width, ".") for number in range(5000))

@tool
def steps(context: ToolContext) -> str:
    """One step, the same step, all of them, more than all, and a word after that; each waits until it was seen."""
    context.progress(1, 3, "one")
    until("seen one")
    context.progress(1, 3, "one again")
    until("seen one again")
    context.progress(3, 3, "all")
    until("seen all")
    context.update("a word")
    until("seen a word")
    context.progress(5, 3, "five")
    until("seen five")
    return "done"

@tool
def waits() -> str:
    """Wait without an update."""
    until("heard")
    return "done"

@tool
async def asks(context: ToolContext) -> str:
    """Ask first."""
    await context.ask("May I?", permission="edit", patterns=["a.py", "b.py"], always=["*.py"])
    return "did it"

@tool
async def picks(context: ToolContext) -> str:
    """Let the person choose, type and agree."""
    ui = context.ui
    return repr([await ui.select("Which?", ["a", "b"]), await ui.input("Name?", "Ada"), await ui.confirm("Sure?")])

@tool
def meets(mine: str, other: str) -> str:
    """Return when the other is there too."""
    (HERE / mine).touch()
    until(other)
    return mine if (HERE / other).exists() else "alone"

@tool
async def who(context: ToolContext) -> str:
    """Who calls."""
    return "|".join([context.session_id, context.message_id, context.agent, context.agent_name, str(context.directory)])

@tool
async def listens(context: ToolContext) -> None:
    """Stop when asked to."""
    ctypes.CDLL(None).prctl(15, b"@NAME@")
    context.progress(0)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        (HERE / "cancelled").touch()
        raise

@tool
def deaf(context: ToolContext) -> None:
    """Never stop."""
    signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(15, b"@NAME@")
    subprocess.Popen(["sleep", "@SLEEP@"])
    context.progress(0)
    time.sleep(30)
'''.replace("@NAME@", NAME).replace("@SLEEP@", SLEEP)


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon that is impatient with tools that do not stop, and a project with tools."""
    daemon.tool("kit", TOOLS)
    daemon.configure('\n[daemon]\nabort_grace = "200ms"\n')
    return daemon


@pytest.fixture(params=["legacy", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol that the host speaks."""
    mode: str = request.param
    return mode


def command(daemon: RunningDaemon) -> list[str]:
    return [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", daemon.socket]


def environment(daemon: RunningDaemon) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(daemon.directory), "LC_ALL": "C.UTF-8"}


@asynccontextmanager
async def host(
    daemon: RunningDaemon,
    era: str,
    *,
    env: dict[str, str] | None = None,
    seconds_max: float = SECONDS_MAX,
    **options: Any,
) -> AsyncGenerator[Client]:
    """A host that has started the bridge, and ends it by closing its end."""
    program, *arguments = command(daemon)
    parameters = StdioServerParameters(
        command=program, args=arguments, cwd=daemon.project, env={**environment(daemon), **(env or {})}
    )
    async with asyncio.timeout(seconds_max), Client(parameters, mode=era, **options) as client:
        yield client


def text(result: types.CallToolResult) -> str:
    """The one text of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def bearing() -> list[int]:
    """The processes of tools that are to be stopped, and what these started, by the kernel's account."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ended while we looked
            comm = Path(f"/proc/{name}/comm").read_text().strip()
            if comm == NAME or SLEEP.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def gone(pids: list[int]) -> bool:
    """Wait until these are dead, for a while."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            if not poll.poll(SECONDS_MAX * 1000):
                return False
        finally:
            os.close(process)
    return True


async def test_a_host_sees_the_tools_with_their_schemas_and_hints(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    echo = tools["kit_echo"]
    assert echo.description == "Say it again."
    assert echo.input_schema["required"] == ["text"]
    assert echo.input_schema["properties"]["text"] == {"type": "string", "description": "What to say."}
    assert tools["kit_nothing"].input_schema["properties"] == {}
    assert echo.annotations == types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    assert echo.title == "Say it again"
    silent = tools["kit_nothing"]  # its author has said nothing, and neither may we
    assert (silent.title, silent.annotations) == (None, types.ToolAnnotations())
    destructive = tools["kit_fail"].annotations
    assert destructive is not None
    assert destructive.destructive_hint is True
    assert [tool.meta for tool in tools.values()] == [None] * len(tools)
    ours = tools["toolcell_read_output"].annotations
    assert ours is not None
    assert ours.read_only_hint is True


async def test_whatever_comes_of_a_call_is_a_result(served: RunningDaemon, era: str) -> None:
    async with host(served, era) as client:
        good = await client.call_tool("kit_echo", {"text": "hé", "times": 2})
        assert (text(good), good.is_error, good.structured_content) == ("héhé", False, None)
        assert text(await client.call_tool("kit_nothing")) == "(no output)"

        wrong = await client.call_tool("kit_echo", {"times": "many"})
        assert wrong.is_error
        assert "text: is missing" in text(wrong)
        assert 'times: should be a valid integer, got "many"' in text(wrong)

        failed = await client.call_tool("kit_fail")
        assert (text(failed), failed.is_error) == ("the printer is on fire", True)

        unknown = await client.call_tool("kit_ecko", {})
        assert unknown.is_error
        assert "kit_echo" in text(unknown)

        said, picture, link = (await client.call_tool("kit_picture")).content
        assert isinstance(said, types.TextContent)
        assert said.text == "look"
        assert isinstance(picture, types.ImageContent)
        assert (base64.b64decode(picture.data), picture.mime_type) == (b"\x89PNG\r\n\x1a\n", "image/png")
        assert isinstance(link, types.ResourceLink)
        assert (link.uri, link.name) == ("https://example.org/more", "more")

        paper, sound = (await client.call_tool("kit_files")).content
        assert isinstance(paper, types.EmbeddedResource)
        assert isinstance(paper.resource, types.BlobResourceContents)
        assert (paper.resource.uri, paper.resource.mime_type) == (
            "attachment:///a%20b.pdf",
            "application/pdf",
        )
        assert base64.b64decode(paper.resource.blob) == b"%PDF"
        assert isinstance(sound, types.AudioContent)
        assert (sound.mime_type, base64.b64decode(sound.data)) == ("audio/mpeg", b"ID3")


@pytest.mark.parametrize(
    ("name", "bytes_max", "lines_max"),
    [
        ("github-copilot-developer", 20_000, None),
        ("opencode", 50_000, 2000),
        ("claude-code", 50_000, None),
        ("kilo", 50_000, 2000),
        ("@cline/core", 8_000, None),
        (
            "person",
            50_000 + HANDLE_BYTES_MAX,
            2000,
        ),  # our own limit of bytes, and the note; the usual one of lines
    ],
)
async def test_a_host_reads_on_what_was_cut_and_never_cuts_itself(
    served: RunningDaemon, era: str, name: str, bytes_max: int, lines_max: int | None
) -> None:
    def fits(text: str) -> bool:
        return len(text.encode()) <= bytes_max and (lines_max is None or len(text.splitlines()) <= lines_max)

    async with host(served, era, client_info=types.Implementation(name=name, version="1")) as client:
        for width in (0, 60):  # many lines, and many bytes
            whole = "\n".join(f"line {number}".ljust(width, ".") for number in range(5000)).encode()
            cut = await client.call_tool("kit_long", {"width": width})
            assert not cut.is_error
            shown = "".join(block.text for block in cut.content if isinstance(block, types.TextContent))
            assert fits(shown)
            kept, cut_here, _ = shown.partition("\n\n[truncated: ")
            assert cut_here
            assert whole.startswith(kept.encode())
            found = re.search(r'toolcell_read_output\(output_id="(o-[^"]+)", start=0\)', shown)
            assert found

            read, start = b"", 0
            while start < len(whole):
                answer = text(
                    await client.call_tool("toolcell_read_output", {"output_id": found[1], "start": start})
                )
                assert fits(answer)
                head, part = answer.split("\n", 1)
                next_start = re.search(r"start=(\d+)", head)
                assert next_start
                read, start = read + part.encode(), int(next_start[1])
            assert read == whole

        wrong = await client.call_tool("toolcell_read_output", {"output_id": "o-unknown"})
        assert wrong.is_error


async def test_claude_is_told_that_the_whole_of_a_result_may_be_shown(served: RunningDaemon) -> None:
    async with host(
        served, "legacy", client_info=types.Implementation(name="claude-code", version="2")
    ) as client:
        (echo,) = [tool for tool in (await client.list_tools()).tools if tool.name == "kit_echo"]

    assert echo.meta == {"anthropic/maxResultSizeChars": 100_000}


async def test_claude_reads_a_definition_that_was_saved_just_before_a_call_below_its_result(
    served: RunningDaemon,
) -> None:
    tool = "from toolcell import tool\n\n@tool\ndef rate({0}) -> str:\n    '''{1}'''\n    return 'a rate'\n"
    served.tool("rate", tool.format("", "Before."))
    async with host(
        served, "legacy", client_info=types.Implementation(name="claude-code", version="2")
    ) as client:
        await client.list_tools()
        assert text(await client.call_tool("rate")) == "a rate"
        for changed in ("Once.", "Twice."):
            served.tool("rate", tool.format("day: str = 'today'", changed))
            result, note = (await client.call_tool("rate")).content
            assert isinstance(result, types.TextContent)
            assert result.text == "a rate"
            assert isinstance(note, types.TextContent)
            assert f"Its definition is now:\n{changed}\n" in note.text


async def test_what_a_tool_reports_comes_as_progress_that_always_rises_within_its_total(
    served: RunningDaemon, era: str
) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def see(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))
        (served.project / f"seen {message}").touch()

    async with host(served, era) as client:
        assert text(await client.call_tool("kit_steps", progress_callback=see)) == "done"

    again, word = seen[1][0], seen[3][0]
    assert seen == [
        (1, 3, "one"), (again, 3, "one again"), (3, 3, "all"), (word, word, "a word"), (5, 5, "five")
    ]  # fmt: skip
    assert 1 < again < 1.001
    assert 3 < word < 3.001


async def test_a_call_that_says_nothing_gives_signs_of_life(
    served: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_call, "HEARTBEAT_SECONDS", 0.05)
    heard: list[float] = []
    messages: set[str | None] = set()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        messages.add(message)
        if len(heard) == 3:
            (served.project / "heard").touch()

    surroundings = HostContext("s", str(served.project), "/")
    async with (
        asyncio.timeout(SECONDS_MAX),
        create_client_server_memory_streams() as (ours, theirs),
        asyncio.TaskGroup() as group,
    ):
        session = HostSession(surroundings, HostLink(served.socket, "running"))
        group.create_task(serve(session, *cast("Any", theirs)))
        async with Client(through(ours)) as client:
            assert text(await client.call_tool("kit_waits", progress_callback=hear)) == "done"
            assert (
                await client.call_tool("kit_waits")
            ).is_error is False  # this one has no token for progress

    assert heard == sorted(set(heard))
    assert len(heard) >= 3
    assert messages == {"running"}  # else a terminal shows the figure


async def test_a_call_that_repeats_one_that_runs_on_is_told_of_it(
    served: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a host that gives up after a while, says nothing, and asks again."""
    monkeypatch.setattr(host_session, "GIVEN_UP_SECONDS", 0)
    surroundings = HostContext("s", str(served.project), "/")
    async with (
        asyncio.timeout(SECONDS_MAX),
        create_client_server_memory_streams() as (ours, theirs),
        asyncio.TaskGroup() as group,
    ):
        session = HostSession(surroundings, HostLink(served.socket, "running"))
        group.create_task(serve(session, *cast("Any", theirs)))
        async with Client(through(ours)) as client:
            begun = anyio.Event()

            async def listening(progress: float, total: float | None, message: str | None) -> None:
                del progress, total, message
                begun.set()

            stopped = asyncio.create_task(client.call_tool("kit_listens", progress_callback=listening))
            await begun.wait()
            stopped.cancel()  # this host says so
            first = asyncio.create_task(client.call_tool("kit_meets", {"mine": "a", "other": "b"}))
            while not (served.project / "a").exists():
                await asyncio.sleep(0.01)
            other = asyncio.create_task(client.call_tool("kit_echo", {"text": "a"}))
            again = asyncio.create_task(client.call_tool("kit_meets", {"mine": "a", "other": "b"}))
            assert text(await other) == "a"
            (served.project / "b").touch()
            assert text(await first) == "a"
            said, note = (await again).content
            assert isinstance(said, types.TextContent)
            assert isinstance(note, types.TextContent)
            assert said.text == "a"
            assert "still ran when this one began: kit_meets was run twice" in note.text


async def test_a_call_ends_when_a_host_that_does_not_say_so_gives_up(served: RunningDaemon) -> None:
    program, *arguments = command(served)
    parameters = StdioServerParameters(
        command=program, args=[*arguments, "--timeout", "300ms"], cwd=served.project, env=environment(served)
    )
    async with asyncio.timeout(SECONDS_MAX), Client(parameters, mode="legacy") as client:
        while True:  # the first calls can be over before their worker has started
            ended = await client.call_tool("kit_listens")
            assert ended.is_error
            if "it had not started" not in text(ended):
                break
        assert re.match(r"timed_out \(timeout\): [\d.]+ s; it stopped by itself", text(ended))
        assert (served.project / "cancelled").exists()


@asynccontextmanager
async def through(streams: Any) -> AsyncGenerator[Any]:
    """Streams that are there already, as a transport."""
    read, write = streams
    async with read, write:
        yield read, write


async def test_a_question_is_put_to_the_person(served: RunningDaemon, era: str) -> None:
    answers = iter(
        [
            types.ElicitResult(action="accept", content={"allow": "no"}),
            types.ElicitResult(action="accept", content={}),
            types.ElicitResult(action="decline"),
            types.ElicitResult(action="accept", content={"allow": "once"}),
            types.ElicitResult(action="accept", content={"allow": "always"}),
        ]
    )
    questions: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        field = params.requested_schema["properties"]["allow"]
        assert (field["enum"], field["default"]) == (["once", "always", "no"], "once")  # what Enter sends
        questions.append(params.message)
        return next(answers)

    async with host(served, era, elicitation_callback=person) as client:
        for _ in range(3):  # what is no clear yes is a no
            assert (await client.call_tool("kit_asks")).is_error
        for _ in range(3):
            assert text(await client.call_tool("kit_asks")) == "did it"

    # The sixth was allowed by the fifth.
    assert questions == ["kit_asks: May I?\n  a.py\n  b.py\n  always: *.py"] * 5


async def test_a_question_for_a_value_is_a_form(served: RunningDaemon, era: str) -> None:
    contents: list[Any] = [
        {"value": "b"}, {"value": "Eve"}, {"value": True},  # answered
        None, None, None,  # dismissed
        {"value": "c"},  # not offered
    ]  # fmt: skip
    asked: list[tuple[str, Any]] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        asked.append((params.message, params.requested_schema["properties"]["value"]))
        content = contents.pop(0)
        return types.ElicitResult(action="decline" if content is None else "accept", content=content)

    async with host(served, era, elicitation_callback=person) as client:
        assert text(await client.call_tool("kit_picks")) == "['b', 'Eve', True]"
        assert text(await client.call_tool("kit_picks")) == "[None, None, False]"
        refused = await client.call_tool("kit_picks")
        assert refused.is_error
        assert "'c', which is not one of the options" in text(refused)
    assert asked[:3] == [
        ("kit_picks: Which?", {"type": "string", "title": "Answer", "enum": ["a", "b"]}),
        ("kit_picks: Name?", {"type": "string", "title": "Answer", "default": "Ada"}),
        ("kit_picks: Sure?", {"type": "boolean", "title": "Answer", "default": True}),
    ]


async def test_without_elicitation_a_question_for_a_value_is_refused(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        result = await client.call_tool("kit_picks")

    assert result.is_error
    assert "the user could not be asked, as" in text(result)


async def test_without_elicitation_a_question_is_denied(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        result = await client.call_tool("kit_asks")

    assert result.is_error
    assert "the user could not be asked, as" in text(result)


async def test_an_answer_to_a_call_that_has_ended_is_told_so(served: RunningDaemon) -> None:
    states: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"allow": "once"})

    async with host(served, "2026-07-28", elicitation_callback=person) as client:
        session = client.session
        asked = await session.call_tool("kit_asks", allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert asked.request_state is not None
        states.append(asked.request_state)
        answers: types.InputResponses = {
            name: types.ElicitResult(action="accept", content={"allow": "once"})
            for name in asked.input_requests or {}
        }
        done = await session.call_tool("kit_asks", input_responses=answers, request_state=states[0])
        assert text(done) == "did it"
        again = await session.call_tool("kit_asks", input_responses=answers, request_state=states[0])
        assert again.is_error
        assert "has ended" in text(again)


async def test_a_state_that_was_made_elsewhere_is_refused(served: RunningDaemon) -> None:
    async with host(served, "2026-07-28") as client:
        for state in ("", "roots", "roots.1", "c-0123456789abcdef", "c-0123456789abcdef.1.00", "\xe9", "."):
            with pytest.raises(MCPError) as refused:
                await client.call_tool("kit_asks", request_state=state)
            assert refused.value.error.code == types.INVALID_PARAMS, state


async def test_calls_run_side_by_side(served: RunningDaemon) -> None:
    async with host(served, "2026-07-28") as client, asyncio.TaskGroup() as group:
        one = group.create_task(client.call_tool("kit_meets", {"mine": "a", "other": "b"}))
        two = group.create_task(client.call_tool("kit_meets", {"mine": "b", "other": "a"}))

    assert (text(one.result()), text(two.result())) == ("a", "b")


async def test_a_cancelled_call_is_stopped_with_all_that_it_started(served: RunningDaemon, era: str) -> None:
    async with host(served, era) as client:
        for tool in ("kit_deaf", "kit_listens"):
            scope = anyio.CancelScope()

            async def there(
                progress: float, total: float | None, message: str | None, scope: anyio.CancelScope = scope
            ) -> None:
                scope.cancel()

            with scope:
                await client.call_tool(tool, progress_callback=there)
            assert scope.cancelled_caught
            # The bridge is still there, so it is not its end that stops the tool.
            assert await asyncio.to_thread(gone, bearing())
            assert (served.project / "cancelled").exists() == (tool == "kit_listens")
        assert text(await client.call_tool("kit_echo", {"text": "on"})) == "on"
    assert bearing() == []


async def test_the_tool_knows_who_calls(served: RunningDaemon) -> None:
    info = types.Implementation(name="claude-code", version="2")
    meta: Any = {"claudecode/toolUseId": "toolu_1"}

    env = {"CLAUDE_CODE_SESSION_ID": "session of Claude", "CLAUDE_PROJECT_DIR": str(served.project)}
    async with host(served, "2026-07-28", env=env, client_info=info) as client:
        who = text(await client.call_tool("kit_who", meta=meta))
        assert who == f"session of Claude|toolu_1|claude-code|main|{served.project}"
        meta = {"sessionID": "another"}
        who = text(await client.call_tool("kit_who", meta=meta))
        assert who.startswith("another|c-")
        meta = {"sessionId": "Codex's", "threadId": "3", "callId": "call_1", "x-codex-turn-metadata": {}}
        assert text(await client.call_tool("kit_who", meta=meta)).startswith("Codex's|call_1|")
        meta = {"sessionId": 1, "callId": ["a"], "claudecode/toolUseId": ""}  # no texts
        assert text(await client.call_tool("kit_who", meta=meta)).startswith("session of Claude|c-")


async def test_the_first_root_is_the_directory(served: RunningDaemon, era: str) -> None:
    elsewhere = served.directory / "elsewhere"
    (elsewhere / ".toolcell" / "tools").mkdir(parents=True)
    (elsewhere / ".toolcell" / "tools" / "kit.py").write_text(TOOLS)

    async def roots(context: Any) -> types.ListRootsResult:
        uris = ["file:///is/not/there", f"file://{elsewhere}", f"file://{served.project}"]
        return types.ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in uris]})

    async with host(served, era, list_roots_callback=roots) as client:
        said = text(await client.call_tool("kit_who"))

    session_id, message_id, agent, name, directory = said.split("|")
    assert (agent, name, directory) == ("mcp", "main", str(elsewhere))
    assert session_id.startswith("mcp-")
    assert message_id.startswith("c-")


NEW = "from toolcell import tool\n\n@tool\ndef new() -> None: ...\n"


async def test_a_host_that_lists_before_it_tells_its_root_hears_of_the_other_tools(
    served: RunningDaemon,
) -> None:
    elsewhere = served.directory / "elsewhere"
    (elsewhere / ".toolcell" / "tools").mkdir(parents=True)
    (elsewhere / ".toolcell" / "tools" / "new.py").write_text(NEW)

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": f"file://{elsewhere}"}]})

    async with host(served, "2026-07-28", list_roots_callback=roots) as client:
        assert "kit_echo" in await names(client)
        async with client.listen(tools_list_changed=True) as changes:
            assert not (await client.call_tool("new")).is_error
            await anext(aiter(changes))
        assert await names(client) == {"new", "toolcell_read_output"}


async def test_a_host_that_never_tells_its_roots_is_served_where_it_started_us(
    served: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_session, "ROOTS_SECONDS", 0.05)
    asked = asyncio.Event()

    async def never(context: Any) -> types.ListRootsResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    surroundings = HostContext("s", None, str(served.project))
    async with (
        asyncio.timeout(SECONDS_MAX),
        create_client_server_memory_streams() as (ours, theirs),
        asyncio.TaskGroup() as group,
    ):
        session = HostSession(surroundings, HostLink(served.socket, "running"))
        group.create_task(serve(session, *cast("Any", theirs)))
        async with Client(through(ours), mode="2026-07-28", list_roots_callback=never) as client:
            first = group.create_task(client.call_tool("kit_who"))
            await asked.wait()
            said = text(await client.call_tool("kit_echo", {"text": "hello"}))
            first.cancel()
    assert said == "hello"


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}


@pytest.mark.parametrize("who", ["daemon", "host"])
async def test_a_host_hears_that_the_tools_have_changed(served: RunningDaemon, who: str) -> None:
    changed = asyncio.Event()

    async def notice(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with host(served, "legacy", message_handler=notice) as client:
        assert "new" not in await names(client)
        served.tool("new", NEW)
        if who == "daemon":
            await asyncio.to_thread(served.reload)
            await changed.wait()
        while "new" not in await names(client):  # that it lists again has the directory looked at again
            await changed.wait()
            changed.clear()


async def test_a_subscriber_hears_that_the_tools_have_changed(served: RunningDaemon) -> None:
    async with host(served, "2026-07-28") as client:
        assert "new" not in await names(client)
        async with client.listen(tools_list_changed=True) as changes:
            served.tool("new", NEW)
            await asyncio.to_thread(served.reload)
            await anext(aiter(changes))
        assert "new" in await names(client)


class Wire:
    """The command as a host sees it that writes its own messages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps(message if number is None else {**message, "id": number}).encode() + b"\n"
        )
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send("tools/call", number, name=tool, arguments=arguments, _meta={"progressToken": number})


MODERN: Any = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@contextmanager
def wire(daemon: RunningDaemon, *discoveries: int) -> Generator[Wire]:
    """The command, after the handshake, and after so many questions what it speaks."""
    with subprocess.Popen(
        command(daemon),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=daemon.project,
        env=environment(daemon),
    ) as process:
        assert process.stdin is not None
        try:
            wire = Wire(process)
            client = {"name": "test", "version": "1"}
            for number in discoveries:
                wire.send("server/discover", number, _meta=MODERN)
            for number in discoveries:
                answer = wire.receive()
                assert answer["id"] == number
                assert "2026-07-28" in answer["result"]["supportedVersions"]
            wire.send("initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
            assert wire.receive()["result"]["capabilities"]["tools"] == {"listChanged": True}
            wire.send("notifications/initialized")
            yield wire
            process.stdin.close()
            process.wait(SECONDS_MAX)
        finally:
            process.kill()


def test_a_host_that_asked_what_we_speak_may_choose_the_handshake(served: RunningDaemon) -> None:
    with wire(served, 100, 101) as bridge:
        bridge.call(1, "kit_echo", text="as before")
        assert bridge.receive()["result"]["content"][0]["text"] == "as before"


def test_a_host_that_closes_our_output_is_gone(served: RunningDaemon) -> None:
    with wire(served) as bridge:
        assert bridge.process.stdout is not None
        bridge.process.stdout.close()
        bridge.call(1, "kit_echo", text="not received")
        assert bridge.process.wait(SECONDS_MAX) == 0
        assert bridge.process.stderr is not None
        assert bridge.process.stderr.read() == b""


def test_a_cancellation_after_the_end_of_a_call_is_nothing(served: RunningDaemon) -> None:
    with wire(served) as bridge:
        for number in (1, 2):
            bridge.call(number, "kit_echo", text=str(number))
            answer = bridge.receive()
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (number, str(number))
            bridge.send("notifications/cancelled", requestId=number, reason="OpenCode says so every time")
        bridge.send("notifications/cancelled", requestId=99)
        bridge.send("ping", 3)
        assert bridge.receive() == {"jsonrpc": "2.0", "id": 3, "result": {}}


def test_a_restart_of_the_daemon_between_two_calls_goes_unnoticed(served: RunningDaemon) -> None:
    with wire(served) as bridge:
        bridge.call(1, "kit_echo", text="one")
        assert bridge.receive()["result"]["content"][0]["text"] == "one"
        served.stop()
        bridge.process.send_signal(signal.SIGSTOP)  # a daemon of a test is to have no session while it starts
        served.start()
        bridge.process.send_signal(signal.SIGCONT)
        bridge.call(2, "kit_echo", text="two")
        assert bridge.receive()["result"]["content"][0]["text"] == "two"


UPGRADE = """
import sys
if "toolcelld" in sys.orig_argv:
    from toolcelld.rpc.messages import decoding
    decoding.PROTOCOL, decoding.VERSION = 2, "9.0.0"
"""
"""A module that Python loads first, with which the next daemon is one of a version whose protocol is another."""


def test_a_daemon_of_another_protocol_under_a_running_bridge_is_told_with_what_to_do(
    served: RunningDaemon,
) -> None:
    with wire(served) as bridge:
        bridge.call(1, "kit_echo", text="one")
        assert bridge.receive()["result"]["content"][0]["text"] == "one"
        served.stop()
        (served.directory / "sitecustomize.py").write_text(UPGRADE)
        served.environment["PYTHONPATH"] = str(served.directory)
        bridge.process.send_signal(signal.SIGSTOP)  # a daemon of a test is to have no session while it starts
        served.start()
        bridge.process.send_signal(signal.SIGCONT)
        for number in (2, 3):
            bridge.call(number, "kit_echo", text="two")
            answer = bridge.receive()
            while answer.get("id") != number:  # the catalog was another for a moment
                answer = bridge.receive()
            assert answer["result"]["isError"]
            said = answer["result"]["content"][0]["text"]
            assert re.search(
                r"speaks protocol 1 \(version [^)]+\), this daemon protocol 2 \(version 9\.0\.0\)", said
            )
            assert said.endswith("start the agent again, which still runs the older one")
    del served.environment["PYTHONPATH"]
    served.stop()  # the next test has a daemon of this version again


@pytest.mark.parametrize("end", [None, signal.SIGINT, signal.SIGTERM], ids=["eof", "SIGINT", "SIGTERM"])
def test_the_end_of_the_host_stops_what_runs_and_ends_the_bridge(
    served: RunningDaemon, end: signal.Signals | None
) -> None:
    with wire(served) as bridge:
        for number, tool in enumerate(["kit_listens", "kit_deaf"], 1):
            bridge.call(number, tool)
            assert bridge.receive()["method"] == "notifications/progress"
        assert len(bearing()) >= 3
        if end is None:
            assert bridge.process.stdin is not None
            bridge.process.stdin.close()
        else:
            bridge.process.send_signal(end)
        assert bridge.process.wait(SECONDS_MAX) == 0
        assert bearing() == []
        assert bridge.process.stderr is not None
        assert bridge.process.stderr.read() == b""
    assert served.status().sessions == 0
    assert (served.project / "cancelled").exists()


def test_a_host_that_stopped_reading_does_not_keep_the_bridge_alive(served: RunningDaemon) -> None:
    with wire(served) as bridge:
        assert bridge.process.stdout is not None
        size = fcntl.fcntl(bridge.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        for number in range(1, 9):
            bridge.call(number, "kit_long")  # each is more than the pipe holds
        deadline = time.monotonic() + SECONDS_MAX
        while waiting(bridge.process.stdout.fileno()) < size and time.monotonic() < deadline:
            time.sleep(0.01)  # a pipe has no word for "full"
        assert waiting(bridge.process.stdout.fileno()) == size
        bridge.process.send_signal(signal.SIGTERM)
        assert bridge.process.wait(SECONDS_MAX) == 0


def waiting(descriptor: int) -> int:
    """The number of unread bytes."""
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    assert isinstance(count, int)
    return count


NO_MESSAGES: Final = (
    (b"hello?", types.PARSE_ERROR),
    (b"\xff\xfe{", types.PARSE_ERROR),
    (b"[1, 2", types.PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "method": "x"' + b"[" * 100_000, types.PARSE_ERROR),
    (b"[]", types.INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', types.INVALID_REQUEST),
    (b'"tools/list"', types.INVALID_REQUEST),
)


def test_a_line_that_is_no_message_is_answered_and_the_next_one_too(served: RunningDaemon) -> None:
    with wire(served) as bridge:
        assert bridge.process.stdin is not None
        for number, (line, code) in enumerate(NO_MESSAGES, 1):
            bridge.process.stdin.write(b"\n \n" + line + b"\n")
            bridge.call(number, "kit_echo", text="still there")
            answers = [bridge.receive(), bridge.receive()]
            assert [answer["error"]["code"] for answer in answers if "error" in answer] == [code], line
            (refused,) = [answer for answer in answers if "error" in answer]
            assert refused["id"] is None
            (done,) = [answer for answer in answers if "result" in answer]
            assert done["result"]["content"][0]["text"] == "still there"


def test_without_a_daemon_the_host_is_told_what_to_do(make_daemon: Callable[[], RunningDaemon]) -> None:
    with wire(make_daemon()) as bridge:
        bridge.send("tools/list", 1)
        assert "toolcell serve" in bridge.receive()["error"]["message"]
        bridge.call(2, "kit_echo", text="x")
        result = bridge.receive()["result"]
        assert result["isError"]
        assert "toolcell serve" in result["content"][0]["text"]


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, "mcp"],
        text=True,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        **options,
    )


def test_without_a_host_it_says_who_is_to_start_it() -> None:
    done = run("from toolcell.cli import main; main()", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdin is no pipe" in done.stderr


@pytest.mark.parametrize("missing", ["mcp", "mcp_types"])
def test_without_the_extra_it_says_which_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from toolcell.cli import main; main()"
    done = run(code, input="")
    assert (done.returncode, done.stdout) == (69, "")
    assert install_command("mcp") in done.stderr
    done = run(f"import sys; sys.modules[{missing!r}] = None; import toolcell.adapters.mcp", input="")
    assert "ImportError" in done.stderr.splitlines()[-1]
    assert install_command("mcp") in done.stderr


def test_the_daemon_starts_while_the_sdk_is_imported(tmp_path: Path) -> None:
    """The SDK of this test is a package that waits for the daemon; imported before the start it would wait in vain."""
    socket = Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp")) / "run" / "daemon.sock"
    for name in ("mcp", "mcp_types"):
        (tmp_path / f"{name}.py").write_text(f"""
import os, time
deadline = time.monotonic() + {SECONDS_MAX}
while not os.path.exists({str(socket)!r}) and time.monotonic() < deadline:
    time.sleep(0.005)
raise ImportError if os.path.exists({str(socket)!r}) else SystemExit(3)
""")
    code = "from toolcell.cli import main; main()"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(socket.parent.parent),
        "TOOLCELL_SOCKET": str(socket),
        "PYTHONPATH": str(tmp_path),
    }
    socket.parent.mkdir(mode=0o700)
    silent, host = os.pipe()
    try:
        done = run(code, stdin=silent, env=env)
        assert done.returncode == 69, done
    finally:
        os.close(silent)
        os.close(host)
        stop = [sys.executable, "-m", "toolcell.cli", "stop"]
        subprocess.run(stop, env=env, check=True, capture_output=True, timeout=SECONDS_MAX)
        shutil.rmtree(socket.parent.parent)


def test_what_is_printed_beside_the_protocol_misses_the_wire() -> None:
    code = """
import asyncio, os, sys
from toolcell.adapters.pipes import Pipes

async def main():
    async with Pipes("an MCP host"):
        print("by Python", flush=True)
        os.write(1, b"by the kernel\\n")
        assert os.read(0, 1) == b""

asyncio.run(main())
"""
    done = run(code, input='{"jsonrpc": "2.0", "method": "ping", "id": 1}\n')
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "by Python\nby the kernel\n"


def test_after_the_end_no_message_is_read_that_came_before_it() -> None:
    code = """
import asyncio
from toolcell.adapters.pipes import Pipes

async def main():
    async with Pipes("an MCP host") as pipes:
        assert b'"id": 1' in await pipes.read()
        pipes.end()
        pipes.end()
        assert await pipes.read() == b""

asyncio.run(main())
"""
    ping = '{"jsonrpc": "2.0", "method": "ping", "id": %d}\n'
    done = run(code, input=ping % 1 + ping % 2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
