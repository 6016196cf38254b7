"""Where the tools of a host are, if it names a workspace in any of its ways, changes it, or names none."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.adapters.test_mcp_bridge import SECONDS_MAX, command, environment, names, text
from tests.daemons import RunningDaemon

from toolcell.adapters.mcp import HostContext
from toolcell.adapters.mcp.host.context import INSTRUCTIONS

pytestmark = pytest.mark.anyio

HERE = '''
import time
from pathlib import Path
from toolcell import ToolContext, tool

@tool
def here(context: ToolContext, until: str = "") -> str:
    """Say where it runs, when a file is there."""
    context.progress(1)
    deadline = time.monotonic() + 30
    while until and not Path(until).exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    return str(context.directory)
'''


@pytest.fixture
def served(daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """A daemon, and two projects in its home, each with a tool of its own."""
    for name in ("one", "two"):
        tools = daemon.directory / name / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        (tools / f"{name}.py").write_text(HERE)
    yield daemon
    for name in ("one", "two", ".toolcell"):
        shutil.rmtree(daemon.directory / name, ignore_errors=True)


@asynccontextmanager
async def host(
    daemon: RunningDaemon, where: Path, era: str = "legacy", env: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """A host that starts its servers in a directory, and keeps what they say on stderr."""
    program, *arguments = command(daemon)
    parameters = StdioServerParameters(
        command=program, args=arguments, cwd=where, env={**environment(daemon), **(env or {})}
    )
    with (daemon.directory / "stderr").open("w") as errors:
        async with (
            asyncio.timeout(SECONDS_MAX),
            Client(stdio_client(parameters, errlog=errors), mode=era, **options) as client,
        ):
            yield client


class Roots:
    """The roots of a host; the notices that the tools have changed."""

    def __init__(self, *uris: object) -> None:
        self.uris = uris
        self.changed = asyncio.Event()

    async def __call__(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(
            {"roots": [{"uri": f"file://{uri}"} for uri in self.uris]}
        )

    async def notice(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()

    async def become(self, client: Client, *uris: object) -> None:
        """Change the roots, and wait until the tools are said to be others."""
        self.uris = uris
        self.changed.clear()
        with pytest.warns(MCPDeprecationWarning):
            await client.send_roots_list_changed()  # pyright: ignore[reportDeprecated]  # hosts do it
        await self.changed.wait()


@pytest.mark.parametrize("era", ["legacy", "auto"])  # the second asks what the server is
@pytest.mark.parametrize("where", ["home", "root"])
async def test_a_host_that_names_no_workspace_is_told_why_there_are_no_tools(
    served: RunningDaemon, era: str, where: str
) -> None:
    place = served.directory if where == "home" else Path("/")
    heard: list[types.LoggingMessageNotificationParams] = []
    told = asyncio.Event()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params)
        told.set()

    options: dict[str, Any] = {} if era == "legacy" else {"log_level": "info"}
    async with host(served, place, era, logging_callback=hear, **options) as client:
        said = client.instructions
        assert said is not None
        assert said.startswith(INSTRUCTIONS)
        reason = said.removeprefix(INSTRUCTIONS).strip()
        assert f"in {place}, which is no project" in reason
        assert "toolcell -C DIR mcp" in reason

        assert await names(client) == {"toolcell_read_output"}
        await names(client)
        await told.wait()
        assert [(params.level, params.data) for params in heard] == [("warning", reason)]  # once

        missing = await client.call_tool("one_here")
        assert missing.is_error
        assert text(missing) == f"There is no tool one_here. {reason}"
    assert (served.directory / "stderr").read_text().count(reason) == 1


@pytest.mark.parametrize(
    "how", ["project", "-C", "TOOLCELL_DIRECTORY", "CLAUDE_PROJECT_DIR", "roots", ".toolcell"]
)
async def test_a_host_that_names_one_in_any_way_is_told_nothing(served: RunningDaemon, how: str) -> None:
    one = served.directory / "one"
    where = one if how == "project" else served.directory
    env = {how: str(one)} if how.isupper() else {"TOOLCELL_DIRECTORY": "${workspaceFolder}"}
    if how == ".toolcell":  # then the home is a project
        (served.directory / ".toolcell" / "tools").mkdir(parents=True)
        (served.directory / ".toolcell" / "tools" / "one.py").write_text(HERE)
        one = served.directory
    if how == "-C":
        env["TOOLCELL_DIRECTORY"] = str(served.directory / "two")  # what a person named counts more
        command_there = command(served)
        parameters = StdioServerParameters(
            command=command_there[0],
            args=[*command_there[1:], "-C", str(one)],
            cwd=where,
            env={**environment(served), **env},
        )
        async with asyncio.timeout(SECONDS_MAX), Client(parameters, mode="legacy") as client:
            assert client.instructions == INSTRUCTIONS
            assert text(await client.call_tool("one_here")) == str(one)
        return
    options: dict[str, Any] = {"list_roots_callback": Roots(one)} if how == "roots" else {}
    async with host(served, where, env=env, **options) as client:
        assert client.instructions == INSTRUCTIONS
        assert text(await client.call_tool("one_here")) == str(one)
    assert (served.directory / "stderr").read_text() == ""


@pytest.mark.parametrize(
    ("value", "named"),
    [("", False), ("${workspaceFolder}", False), ("/no/such", False), ("/etc/passwd", False), ("/usr", True)],
)
def test_a_variable_that_names_no_directory_names_nothing(value: str, named: bool) -> None:
    surroundings = HostContext.of({"TOOLCELL_DIRECTORY": value})
    assert surroundings.directory == (value if named else None)


async def test_a_host_without_roots_after_all_hears_why_after_the_list(served: RunningDaemon) -> None:
    heard = asyncio.Event()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        if "which is no project" in str(params.data):
            heard.set()

    async with host(served, served.directory, list_roots_callback=Roots(), logging_callback=hear) as client:
        assert client.instructions == INSTRUCTIONS  # it might have had some
        await names(client)
        await heard.wait()


async def test_other_roots_are_other_tools_and_running_calls_end_where_they_began(
    served: RunningDaemon,
) -> None:
    one, two = served.directory / "one", served.directory / "two"
    go = one / "go"
    roots = Roots(one)
    async with host(
        served, served.directory, list_roots_callback=roots, message_handler=roots.notice
    ) as client:
        assert await names(client) == {"one_here", "toolcell_read_output"}
        runs = asyncio.Event()

        async def running(progress: float, total: float | None, message: str | None) -> None:
            runs.set()

        async with asyncio.TaskGroup() as group:
            call = group.create_task(
                client.call_tool("one_here", {"until": str(go)}, progress_callback=running)
            )
            await runs.wait()
            await roots.become(client, two, one)
            assert await names(client) == {"two_here", "toolcell_read_output"}
            assert text(await client.call_tool("two_here")) == str(two)
            go.touch()
        assert text(call.result()) == str(one)

        await roots.become(client)  # none: then where it was started, which is no project
        assert await names(client) == {"toolcell_read_output"}
        assert "which is no project" in text(await client.call_tool("two_here"))


async def test_roots_that_change_all_the_time_lead_to_the_last(served: RunningDaemon) -> None:
    one, two = served.directory / "one", served.directory / "two"
    roots = Roots(one)
    async with host(
        served, served.directory, list_roots_callback=roots, message_handler=roots.notice
    ) as client:
        await names(client)
        for number in range(20):
            roots.uris = (two, one)[number % 2], "/no/such"
            with pytest.warns(MCPDeprecationWarning):
                await client.send_roots_list_changed()  # pyright: ignore[reportDeprecated]  # hosts do it
        roots.uris = ("/no/such", two)
        with pytest.warns(MCPDeprecationWarning):
            await client.send_roots_list_changed()  # pyright: ignore[reportDeprecated]  # hosts do it
        while await names(client) != {"two_here", "toolcell_read_output"}:
            await roots.changed.wait()
            roots.changed.clear()
        assert text(await client.call_tool("two_here")) == str(two)


async def test_a_named_directory_that_is_no_text_is_a_sentence(served: RunningDaemon) -> None:
    named = os.fsdecode(os.fsencode(served.directory) + b"/\xff")
    os.mkdir(named)
    program, *arguments = command(served)
    server = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env={**environment(served), "TOOLCELL_DIRECTORY": named},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        line = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
        said, errors = await server.communicate(line)
    assert (server.returncode, said) == (2, b"")
    assert "The path of the directory is not UTF-8" in errors.decode()
    assert "Traceback" not in errors.decode()
    os.rmdir(named)


async def test_a_directory_that_was_named_is_not_left_for_roots(served: RunningDaemon) -> None:
    one, two = served.directory / "one", served.directory / "two"
    roots = Roots(two)
    async with host(
        served, served.directory, env={"TOOLCELL_DIRECTORY": str(one)}, list_roots_callback=roots
    ) as client:
        await names(client)
        with pytest.warns(MCPDeprecationWarning):
            await client.send_roots_list_changed()  # pyright: ignore[reportDeprecated]  # hosts do it
        assert text(await client.call_tool("one_here")) == str(one)
