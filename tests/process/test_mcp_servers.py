"""MCP servers of the configuration through a real daemon: described once, started at their first call, stopped with proof."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests import servers
from tests.daemons import RunningDaemon

from toolcell.client import Catalog, ImageData, Progress, ResourceLink, Session, Text
from toolcell_proto.v1 import operator_pb2
from toolcelld.cell.processes.usage import resident_memory

pytestmark = pytest.mark.anyio

PLAIN: Final = Path(servers.__file__).with_name("plain.py")
SECONDS_MAX: Final = 40
WRITABLE: Final = (
    '[profile.roomy]\nbase = "{base}"\nwritable = ["{directory}"]\n[defaults]\nsandbox = "roomy"\n'
)


LOW_LEVEL: Final = """
from anyio import run
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

async def listed(context, params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return types.ListToolsResult(tools=[types.Tool(name="say", input_schema=schema)])

async def called(context, params):
    text = f"said {params.arguments['text']}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

server = Server("low", on_list_tools=listed, on_call_tool=called)

async def main():
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

if __name__ == "__main__":
    run(main)
"""
"""What five of eight servers that were tried are: a server of the SDK without decorators, whose tools no import tells."""


def entry(*words: str, name: str = "plain", options: str = "") -> str:
    """A source that is the server of the tests."""
    command = json.dumps([sys.executable, "-I", "${project}/plain.py", *words])
    return f"\n[source.{name}]\nmcp = {command}\n{options}\n"


def serve(daemon: RunningDaemon, text: str = "", before: str = "") -> None:
    """Configure the server of the tests, and have the daemon read it."""
    shutil.copy(PLAIN, daemon.project / "plain.py")
    daemon.config.write_text(before + (text or entry()))
    daemon.reload()


async def text_of(session: Session, tool: str, **arguments: object) -> str:
    outcome = await session.call(tool, arguments)
    assert outcome.ok, outcome
    return outcome.text


def workers(daemon: RunningDaemon) -> list[operator_pb2.WorkerInfo]:
    request = operator_pb2.ListWorkersRequest()
    return list(daemon.ask("Operator/ListWorkers", request, operator_pb2.ListWorkersResponse).workers)


def processes(text: str) -> list[int]:
    """The processes of this machine whose command line has a text."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if text.encode() in command:
            found.append(int(path.parent.name))
    return found


def no_other_sleep() -> str:
    """How long a process sleeps that is looked for: as long as none of another test, or of another run of this one."""
    return f"59.{secrets.randbelow(10**9)}"


def follow(_: Catalog) -> None:
    """Have a session take every newer catalog."""


def is_ticking(path: Path) -> bool:
    """Whether a tool has counted in a file."""
    return path.exists() and path.stat().st_size > 3


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event tells of."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.02)


async def test_tools_are_those_of_the_server_and_it_starts_at_its_first_call(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        catalog = session.catalog
        assert catalog.problems == ()
        assert all(name.startswith("plain_") for name in catalog.tools)
        echo, add = catalog.tools["plain_echo"], catalog.tools["plain_add"]
        assert (echo.description, echo.title, echo.scope) == ("Return a text.", "Say it again", "plain")
        assert (echo.read_only, echo.destructive, echo.idempotent) == (True, False, True)
        assert echo.input_schema["required"] == ["text"]
        assert add.output_schema == {
            "type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
        }  # fmt: skip
        assert workers(daemon) == []
        await until(lambda: processes(str(daemon.project)) == [])  # the one that was asked for its tools
        assert await text_of(session, "plain_echo", text="ünï") == "ünï"
        outcome = await session.call("plain_add", {"a": 1, "b": 2})
        assert (outcome.details, outcome.structured) == ({"sum": 3}, True)
        assert len(workers(daemon)) == len(processes(str(daemon.project))) == 1
    async with daemon.connect() as session:
        assert "plain_echo" in session.catalog.tools
        assert len(workers(daemon)) == 1, "it was described a second time"


@pytest.mark.slow
async def test_content_and_failures_are_as_the_server_sends_them(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        picture, link, unknown = (await session.call("plain_picture")).content
        assert isinstance(picture, ImageData)
        assert (picture.mime_type, len(picture.data)) == ("image/png", 70)
        assert link == ResourceLink("https://example.org/a", "a", "text/html")
        assert unknown == Text("(content of the type 'new', which is not shown)")
        failed = await session.call("plain_fails")
        assert (failed.kind, failed.text) == ("tool_error", "it failed")
        refused = await session.call("plain_refuses")
        assert (refused.kind, refused.text) == ("tool_error", "there is no refuses (code -32602)")
        without = await session.call("plain_echo")
        assert (without.kind, without.cause) == ("crashed", "exit 1")
        assert "KeyError: 'text'" in without.message


@pytest.mark.slow
async def test_a_file_of_the_low_level_class_has_no_tool_and_is_run_as_a_server(
    daemon: RunningDaemon,
) -> None:
    path = daemon.tool("low", LOW_LEVEL)
    async with daemon.connect() as session:
        await session.described(30)
        assert '[source.NAME] mcp = ["python3", "/its/path"]' in session.catalog.problems[0].message
    path.rename(daemon.project / "low.py")
    command = json.dumps([sys.executable, "${project}/low.py"])
    serve(daemon, f"[source.low]\nmcp = {command}\n")
    async with daemon.connect() as session:
        await session.described(30)
        assert await text_of(session, "low_say", text="ü") == "said ü"


@pytest.mark.parametrize(
    "count", [pytest.param(6, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.nightly)]
)
async def test_of_many_servers_those_that_are_called_have_a_process(
    count: int, daemon: RunningDaemon
) -> None:
    serve(daemon, "".join(entry(name=f"s{number}") for number in range(count)))
    async with daemon.connect() as session:
        await session.described(SECONDS_MAX)
        assert {tool.scope for tool in session.catalog.tools.values()} == {f"s{n}" for n in range(count)}
        await until(lambda: processes(str(daemon.project)) == [])  # those that were asked for their tools
        for name in ("s1", f"s{count - 1}"):
            assert await text_of(session, f"{name}_count") == "1"
        assert len(workers(daemon)) == len(processes(str(daemon.project))) == 2


@pytest.mark.slow
async def test_sessions_of_a_project_share_one_process_that_keeps_its_state(daemon: RunningDaemon) -> None:
    serve(daemon)
    below = daemon.project / "below"
    below.mkdir()
    async with daemon.connect() as one, daemon.connect(directory=below) as other:
        assert await text_of(one, "plain_count") == "1"
        assert await text_of(other, "plain_count") == "2"
        roots = json.loads(await text_of(other, "plain_roots"))["roots"]
        assert [root["uri"] for root in roots] == [daemon.project.as_uri()]
        (use,) = [worker.server for worker in workers(daemon)]
        assert use == operator_pb2.ServerUse(name="plain", running=0, places=32, sessions=2, starts=1)
        assert (await one.call("plain_killed")).kind == "crashed"
        assert await text_of(one, "plain_count") == "1"
        (worker,) = workers(daemon)
        assert worker.server.starts == 2
        assert worker.memory_bytes != resident_memory(worker.pid)[0], "of the worker alone"
    assert len(processes(str(daemon.project))) == 1


@pytest.mark.slow
async def test_a_session_s_own_server_ends_with_it(daemon: RunningDaemon) -> None:
    serve(daemon, entry(options='share = "session"'))
    async with daemon.connect() as one, daemon.connect() as other:
        assert [await text_of(session, "plain_count") for session in (one, other, one)] == ["1", "1", "2"]
        assert len(processes(str(daemon.project))) == 2
    await until(lambda: not processes(str(daemon.project)))


@pytest.mark.slow
async def test_a_server_of_all_projects_has_none(daemon: RunningDaemon) -> None:
    program = daemon.project / "plain.py"
    command = json.dumps([sys.executable, "-I", str(program)])
    profile = f'[profile.look]\nreadable = ["{program}"]\n'
    serve(daemon, f'[source.plain]\nmcp = {command}\nshare = "user"\nsandbox = "look"\n', profile)
    async with daemon.connect() as session:
        await session.call("plain_writes", {"path": str(daemon.project / "made")})
        assert json.loads(await text_of(session, "plain_roots"))["roots"][0]["uri"] == "file:///"
    assert not (daemon.project / "made").exists()


@pytest.mark.parametrize("base", ["strict", pytest.param("baseline", marks=pytest.mark.slow)])
async def test_an_aborted_call_ends_its_server_and_the_next_call_has_a_new_one(
    base: str, daemon: RunningDaemon
) -> None:
    """Neither a thread that ignores the cancellation, nor a server that reads nothing, goes on after the outcome."""
    serve(daemon, before=WRITABLE.format(base=base, directory=daemon.directory))
    async with daemon.connect() as session:
        for tool in ("tick", "block"):
            ticks = daemon.directory / f"{tool}.txt"
            call = session.call(f"plain_{tool}", {"path": str(ticks)})
            await until(partial(is_ticking, ticks))
            call.abort("enough")
            outcome = await call
            size = ticks.stat().st_size
            assert (outcome.kind, outcome.stopped) == ("aborted", "killed"), outcome
            assert "stopped by itself" not in outcome.message
            assert processes(str(daemon.project)) == []
            assert await text_of(session, "plain_count") == "1"
            assert ticks.stat().st_size == size


async def test_a_server_that_ends_in_a_call_fails_that_call_alone(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        exited = await session.call("plain_exits")
        assert (exited.kind, exited.cause) == ("crashed", "exit 3")
        assert "going" in exited.message
        killed = await session.call("plain_killed")
        assert (killed.kind, killed.cause) == ("crashed", "SIGKILL")
        assert await text_of(session, "plain_count") == "1"


@pytest.mark.slow
async def test_what_a_server_starts_stays_with_it_and_ends_with_its_cell(daemon: RunningDaemon) -> None:
    serve(daemon)
    seconds = no_other_sleep()
    async with daemon.connect() as session:
        await text_of(session, "plain_child", seconds=seconds)
        assert await text_of(session, "plain_count") == "1"
        assert await text_of(session, "plain_count") == "2"
        (child,) = processes(f"sleep\x00{seconds}")
        worker = workers(daemon)[0]
        assert worker.calls == 3
        assert (await session.call("plain_killed")).kind == "crashed"
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
async def test_a_killed_daemon_leaves_no_process_of_a_server(daemon: RunningDaemon) -> None:
    serve(daemon)
    seconds = no_other_sleep()
    async with daemon.connect() as session:
        await text_of(session, "plain_child", seconds=seconds)
        assert len(processes(str(daemon.project))) == 1
        daemon.stop(9)
        await until(lambda: not processes(str(daemon.project)) and not processes(f"sleep\x00{seconds}"))


@pytest.mark.slow
async def test_a_server_sees_the_granted_variables_and_its_secrets_are_masked(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    many = {f"KEY_{number}": f"value-{number}" for number in range(200)}
    daemon = make_daemon(environment={**many, "HIDDEN_TOKEN": "do-not-show-this"})
    daemon.start()
    options = 'env = ["KEY_7"]\nsecrets = ["TOKEN"]'
    serve(daemon, entry(options=options), '[secrets]\nTOKEN = { env = "HIDDEN_TOKEN" }\n')
    async with daemon.connect() as session:
        outcome = await session.call("plain_variables")
    assert "do-not-show-this" not in repr(outcome)
    seen = json.loads(outcome.text)
    assert seen["KEY_7"] == "value-7"
    assert set(seen) - {"LC_ALL", "LANG"} <= {"HOME", "PATH", "TMPDIR", "TZ", "KEY_7", "TOKEN"}


@pytest.mark.slow
async def test_progress_and_records_reach_the_caller(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        call = session.call("plain_progress")
        events = [event async for event in call]
        assert (await call).text == "done"
    assert [event.message for event in events if isinstance(event, Progress)][-1:] == ["step 2"]
    assert any("a record" in str(event) for event in events)


@pytest.mark.slow
async def test_only_the_chosen_tools_are_offered(daemon: RunningDaemon) -> None:
    serve(daemon, entry(options='tools = ["echo", "c*", "gone"]'))
    async with daemon.connect() as session:
        assert sorted(session.catalog.tools) == ["plain_child", "plain_count", "plain_echo"]
        (problem,) = session.catalog.problems
    assert problem.message.startswith("tools has 'gone', which the server does not offer; it has echo, add")


@pytest.mark.slow
async def test_a_server_that_does_not_start_is_a_problem_with_its_last_words(daemon: RunningDaemon) -> None:
    serve(
        daemon,
        entry("exit=4")
        + '[source.missing]\nmcp = ["no-such-program"]\n[source.held]\nmcp = ["docker", "run", "x"]\n',
    )
    async with daemon.connect() as session:
        found = {Path(problem.path).stem: problem.message for problem in session.catalog.problems}
        assert session.catalog.tools == {}
    assert (
        found["plain"]
        == "the process exited with status 4 while it was loaded\ncannot start\n"
        + found["plain"].splitlines()[-1]
    )
    assert (
        found["missing"]
        == "the server did not start: no-such-program cannot be started: No such file or directory"
    )
    assert "gives every client the whole machine" in found["held"]


async def test_a_rule_by_name_gives_a_tool_no_other_cell_than_its_server_s(daemon: RunningDaemon) -> None:
    serve(
        daemon,
        entry()
        + "[tool.plain_echo]\nnetwork = true\n[tool.plain_count]\nmemory = '64MiB'\n[tool.plain_pid]\ntimeout = '5s'\n",
    )
    async with daemon.connect() as session:
        for tool in ("plain_echo", "plain_count"):
            refused = await session.call(tool, {})
            assert (refused.kind, refused.cause) == ("refused", "needs_grant"), refused
            assert "[source.plain]" in refused.message
        assert (await session.call("plain_pid")).ok


@pytest.mark.slow
async def test_limits_of_a_source_are_those_of_its_cell(daemon: RunningDaemon) -> None:
    serve(daemon, entry(options='timeout = "300ms"\nread_only = true'))
    async with daemon.connect() as session:
        outcome = await session.call("plain_slow", {"seconds": 50})
        assert (outcome.kind, outcome.stopped) == ("timed_out", "killed"), outcome
        assert processes(str(daemon.project)) == []
        written = await session.call("plain_writes", {"path": str(daemon.project / "made")})
        assert not written.ok
    assert not (daemon.project / "made").exists()


async def test_a_project_cannot_define_a_server(daemon: RunningDaemon) -> None:
    """Neither by its own configuration, nor by a file with the suffix of an entry, nor by one that hosts read."""
    serve(daemon, before='trust = "confined"\n[source.unused]\ndirectory = "/nowhere"\n', text=" ")
    mark = daemon.project / "started"
    command = ["touch", str(mark)]
    (daemon.project / ".toolcell" / "config.toml").write_text(f"[source.evil]\nmcp = {json.dumps(command)}\n")
    (daemon.project / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [str(mark)]}}})
    )
    made = json.dumps({"name": "evil", "command": command, "tools": []})
    for place in ("tools", "plugins"):
        directory = daemon.project / ".toolcell" / place
        directory.mkdir(exist_ok=True)
        (directory / "evil.mcp").write_text(made)
    async with daemon.connect() as session:
        assert session.catalog.tools == {}
        assert any("unknown key" in problem.message for problem in session.catalog.problems)
    assert not mark.exists()


@pytest.mark.slow
async def test_saving_a_neighbour_starts_no_server_anew_and_a_change_of_its_entry_does(
    daemon: RunningDaemon,
) -> None:
    serve(daemon)
    async with daemon.connect(on_catalog=follow) as session:
        first = await text_of(session, "plain_pid")
        daemon.tool("other", "from toolcell import tool\n\n@tool\ndef other() -> str:\n    return 'a'\n")
        await until(lambda: "other" in session.catalog.tools)
        assert await text_of(session, "plain_pid") == first
        await text_of(session, "plain_count")
        daemon.config.write_text(entry(options='tools = ["count", "pid"]'))
        daemon.reload()
        await until(lambda: "plain_echo" not in session.catalog.tools)
        assert await text_of(session, "plain_count") == "1"


@pytest.mark.slow
async def test_a_server_is_kept_as_long_as_its_source_says(make_daemon: Callable[..., RunningDaemon]) -> None:
    text = "[daemon]\nworker_idle = '100ms'\n"
    daemon = make_daemon(config=text)
    daemon.start()
    text += entry(name="brief", options='idle = "50ms"') + entry(name="long", options='idle = "1h"')
    serve(daemon, text + entry(name="usual") + entry(name="ever", options='idle = "off"'))
    async with daemon.connect() as session:
        kept = {name: await text_of(session, f"{name}_pid") for name in ("long", "ever")}
        for name in ("brief", "usual"):
            await text_of(session, f"{name}_count")
        await until(lambda: len(processes(str(daemon.project))) == 2)
        assert {name: await text_of(session, f"{name}_pid") for name in kept} == kept
