"""The plugin in the shape of OpenCode 2, in a stand-in for that: no registry has OpenCode 2 (second_host.mjs).

What the stand-in demands of a plugin and of its results is what the published interface declares.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.adapters.opencode.serve import until
from tests.adapters.opencode.test_place import node
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry, plugin_path
from toolcell.cli.adapters import opencode as command

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECONDS_MAX = 30
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

TOOLS = '''
import asyncio
from pathlib import Path

from toolcell import File, ToolContext, ToolError, tool

@tool
def who(context: ToolContext) -> dict[str, object]:
    """Who calls."""
    fields = ("session_id", "message_id", "call_id", "agent", "agent_name", "directory", "traceparent")
    return {name: str(getattr(context, name)) for name in fields}

@tool
async def steps(context: ToolContext) -> str:
    context.metadata("Three rows", rows=3)
    context.progress(1, 2, "half")
    return "done"

@tool
async def waits(context: ToolContext) -> str:
    context.metadata("Waiting")
    try:
        await asyncio.sleep(600)
    finally:
        Path(context.directory, "stopped").touch()
    return "never"

@tool
def report(context: ToolContext) -> File:
    path = Path(context.directory, "report.csv")
    path.write_text("a,b")
    return File(path)

@tool
def fails() -> str:
    raise ToolError("The table is locked")

@tool
async def asks(context: ToolContext) -> str:
    await context.ask("Really?")
    return "asked"

@tool
async def ends(context: ToolContext) -> str:
    await context.abort()
    return "over"

@tool(destructive=True)
def wipes(context: ToolContext) -> str:
    Path(context.directory, "wiped").touch()
    return "wiped"
'''


class Host:
    """The stand-in, as a test drives it."""

    def __init__(self, process: Process, directory: Path, options: dict[str, Any]) -> None:
        self.told: list[dict[str, Any]] = []
        self.options = options
        self.directory = directory
        self._process = process
        self._numbers = itertools.count()
        self._news = asyncio.Condition()

    def bridge(self) -> psutil.Process:
        """The one bridge that it has started."""
        (found,) = psutil.Process(self._process.pid).children()
        return found

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            async with self._news:
                self.told.append(json.loads(line))
                self._news.notify_all()

    async def heard(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first thing that it says of a kind, be it said already."""
        async with asyncio.timeout(SECONDS_MAX), self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.told)))
            return next(filter(wanted, self.told))

    def start(self, does: str, **more: Any) -> Awaitable[dict[str, Any]]:
        """Give it a command; its answer can be awaited."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        message = {"does": does, "number": number, "directory": str(self.directory), **more}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return self.heard(lambda one: one.get("number") == number)

    async def load(self, **more: Any) -> dict[str, Any]:
        return await self.start("load", **{"options": self.options, **more})

    async def call(self, tool: str, *, call_id: str = "c-1", **more: Any) -> dict[str, Any]:
        return await self.start("call", tool=tool, id=call_id, args={}, **more)


def options_of(socket: str) -> dict[str, Any]:
    """The options of the plugin for a daemon that runs."""
    _, options = plugin_entry(socket=socket, start=False)
    return dict(options)


@pytest.fixture
def plugin() -> Path:
    """The file that it loads."""
    return plugin_path()


@asynccontextmanager
async def hosting(
    file: Path, directory: Path, options: dict[str, Any], **environment: str
) -> AsyncGenerator[Host]:
    words = (node(), str(Path(__file__).with_name("second_host.mjs")), file.as_uri())
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "TRACEPARENT": TRACE, **environment}
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, env=clean)
    host = Host(process, directory, options)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(host.read())
            yield host
            assert process.stdin is not None
            process.stdin.close()
    finally:
        if process.returncode is None:
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@pytest.fixture
async def host(daemon: RunningDaemon, plugin: Path) -> AsyncGenerator[Host]:
    """The stand-in, with a daemon that has tools."""
    daemon.tool("t", TOOLS)
    for name in ("shell", "execute"):
        daemon.tool(name, f"from toolcell import tool\n\n@tool\ndef {name}() -> str:\n    return 'ours'\n")
    daemon.describe()
    async with hosting(plugin, daemon.project, options_of(daemon.socket)) as host:
        yield host


async def test_the_tools_are_added_with_their_schemas_and_names_that_are_free(host: Host) -> None:
    loaded = await host.load()
    tools = {tool["name"]: tool for tool in loaded["tools"]}
    named = {"t_who", "t_steps", "t_waits", "t_report", "t_fails", "t_asks", "t_ends", "t_wipes"}
    assert tools.keys() == named | {"toolcell_read_output", "toolcell_shell", "toolcell_execute"}
    assert tools["t_who"]["description"] == "Who calls."
    assert tools["toolcell_read_output"]["input"]["required"] == ["output_id"]
    assert any("toolcell_execute" in one.get("text", "") for one in host.told)
    called = await host.call("toolcell_execute")
    assert called["result"]["content"] == [{"type": "text", "text": "ours"}]


async def test_a_tool_knows_who_calls_and_in_which_trace(host: Host) -> None:
    await host.load()
    called = await host.call("t_who", agent="plan")
    assert json.loads(called["result"]["content"][0]["text"]) == {
        "session_id": "ses_1",
        "message_id": "msg_1",
        "call_id": "c-1",
        "agent": "opencode",
        "agent_name": "plan",
        "directory": str(host.directory),
        "traceparent": TRACE,
    }


async def test_results_files_and_failures_are_those_of_version_2(host: Host) -> None:
    await host.load()
    _, file = (await host.call("t_report"))["result"]["content"]
    assert file == {
        "type": "file",
        "uri": "data:text/csv;base64,YSxi",
        "mime": "text/csv",
        "name": "report.csv",
    }
    stepped = (await host.call("t_steps", call_id="c-2"))["result"]
    assert stepped["content"] == [{"type": "text", "text": "done"}]
    assert stepped["metadata"]["rows"] == 3
    assert stepped["metadata"]["progress"] == {"done": 1, "total": 2, "message": "half"}
    assert (await host.call("t_fails", call_id="c-3"))["error"] == "The table is locked"


async def test_the_signal_is_the_abort_and_progress_is_told_before(host: Host) -> None:
    await host.load()
    call = asyncio.ensure_future(host.call("t_waits"))
    told = await host.heard(lambda one: one.get("progress") == "c-1")
    assert told["metadata"]["title"] == "Waiting"
    await host.start("abort", id="c-1")
    assert "aborted" in (await call)["error"]
    assert (host.directory / "stopped").exists()


async def test_what_would_be_asked_is_denied_unless_the_option_allows_it(host: Host) -> None:
    await host.load()
    assert "the user could not be asked, as opencode" in (await host.call("t_asks"))["error"]
    assert "declared destructive" in (await host.call("t_wipes", call_id="c-2"))["error"]
    assert not (host.directory / "wiped").exists()
    await host.start("unload")
    await host.load(options={**host.options, "destructive": "allow"})
    assert (await host.call("t_wipes", call_id="c-3"))["result"]["content"][0]["text"] == "wiped"


async def test_a_tool_has_the_turn_aborted(host: Host) -> None:
    await host.load()
    assert "result" in await host.call("t_ends")
    assert {"interrupted": "ses_1"} in host.told


async def test_a_change_reloads_the_tools_until_the_plugin_is_unloaded(
    host: Host, daemon: RunningDaemon
) -> None:
    await host.load()
    daemon.tool("more", "from toolcell import tool\n\n@tool\ndef more() -> str:\n    return 'more'\n")
    await host.heard(lambda one: "more" in one.get("tools", ()) and "reloaded" in one)
    assert (await host.call("more"))["result"]["content"][0]["text"] == "more"
    assert (await host.start("unload"))["names"] == []
    assert daemon.status().sessions == 0


async def test_each_directory_has_its_own_tools_and_unloading_one_leaves_the_other(
    host: Host, daemon: RunningDaemon, tmp_path: Path
) -> None:
    await host.load()
    other = await host.load(directory=str(tmp_path))
    assert [tool["name"] for tool in other["tools"]] == ["toolcell_read_output"]
    await host.start("unload", directory=str(tmp_path))
    assert json.loads((await host.call("t_who"))["result"]["content"][0]["text"])["directory"] == str(
        host.directory
    )


async def test_the_calls_of_a_bridge_that_dies_end_so_and_the_next_call_starts_another(
    host: Host, tmp_path: Path
) -> None:
    await host.load()
    await host.load(directory=str(tmp_path))
    first = host.bridge()  # for both directories
    call = asyncio.ensure_future(host.call("t_waits"))
    await host.heard(lambda one: one.get("progress") == "c-1")
    first.kill()
    assert (await call)["error"] == (
        "internal (connection_lost): Toolcell's bridge has ended: SIGKILL.\n"
        "What it had done until then is not undone."
    )
    assert (await host.call("t_fails", call_id="c-2"))["error"] == "The table is locked"
    assert host.bridge().pid != first.pid
    await until((host.directory / "stopped").exists)  # the daemon aborts the calls of a client that is gone


async def test_the_bridge_ends_with_the_last_directory(host: Host, tmp_path: Path) -> None:
    await host.load()
    await host.load(directory=str(tmp_path))
    bridge = host.bridge()
    await host.start("unload")
    assert bridge.is_running()
    await host.start("unload", directory=str(tmp_path))
    await until(lambda: not bridge.is_running())


async def test_a_tool_that_opencode_refuses_leaves_the_others(host: Host) -> None:
    loaded = await host.load(refuses="t_steps")
    names = {tool["name"] for tool in loaded["tools"]}
    assert ("t_steps" in names, "t_who" in names) == (False, True)
    assert any("does not accept the tool t_steps: not this one" in one.get("text", "") for one in host.told)


async def test_without_a_daemon_loading_fails_with_what_to_do(plugin: Path, tmp_path: Path) -> None:
    async with hosting(plugin, tmp_path, options_of(str(tmp_path / "none" / "d.sock"))) as host:
        assert "Toolcell's tools are missing: No daemon runs here" in (await host.load())["error"]


async def test_a_host_without_tools_gets_nothing_and_starts_nothing(plugin: Path, tmp_path: Path) -> None:
    """As the beginnings of version 2 that are in 1.18."""
    options = {"socket": str(tmp_path / "none.sock"), "command": ["/nowhere/toolcell"]}
    async with hosting(plugin, tmp_path, options) as host:
        assert (await host.load(bare=True))["tools"] == []
        assert host.told == [{"number": 0, "tools": []}]


async def test_the_file_that_install_writes_loads_in_version_2(daemon: RunningDaemon, tmp_path: Path) -> None:
    daemon.tool("t", TOOLS)
    daemon.describe()
    program = tmp_path / "toolcell"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m toolcell.cli "$@"\n')
    program.chmod(0o700)
    options = options_of(daemon.socket) | {"command": [str(program)]}
    (tmp_path / "toolcell.mjs").write_text(command.LOADER % json.dumps(options))
    async with hosting(tmp_path / "toolcell.mjs", daemon.project, {}) as host:
        assert "t_who" in {tool["name"] for tool in (await host.load())["tools"]}
    program.unlink()
    async with hosting(tmp_path / "toolcell.mjs", daemon.project, {}) as host:
        assert "cannot be run" in (await host.load())["error"]
        assert (await host.load(bare=True))["tools"] == []
