"""`toolcell mcp` on stdin and stdout: what it answers without the SDK is what the SDK answers, and from one session.

The SDK of some of these tests is one that waits to be allowed to load, so that nothing can come from it before.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import types
from tests.adapters.conftest import IMPATIENT, LATE
from tests.adapters.mcp_reference import Script, encoded, run_sdk, sdk_serves
from tests.adapters.test_mcp_bridge import SECONDS_MAX, Wire, environment
from tests.daemons import RunningDaemon

from toolcell._extras import install_command
from toolcell.adapters.mcp import HostContext, HostLink, Kernel, StdioServer
from toolcell.adapters.mcp.bridge import host_server
from toolcell.adapters.mcp.host import offers as host_offers
from toolcell.adapters.mcp.host import session as host_session
from toolcell.adapters.mcp.host.context import Context
from toolcell.adapters.mcp.host.link import LinkCaller
from toolcell.adapters.mcp.host.session import HostSession
from toolcell.adapters.mcp.stdio import requests
from toolcell.adapters.mcp.stdio import server as server_module
from toolcell.adapters.mcp.stdio.server import KEPT_MAX
from toolcell.adapters.mcp.stdio.wire import HANDSHAKE_VERSIONS, MODERN_VERSION
from toolcell.adapters.pipes import LineTooLong
from toolcell.client import Session
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("era", "version")]

TOOLS = '''
from typing import TypedDict
from toolcell import tool

class Count(TypedDict):
    words: int

@tool(title="Count words", read_only=True, idempotent=True)
def count(text: str, times: int = 1) -> Count:
    """Count the words."""
    return {"words": len(text.split()) * times}

@tool(destructive=True)
def silent() -> None:
    """N\u00f6thing."""
'''
CLIENT = {
    "name": "test", "title": "A test", "version": "1", "description": "of ours", "websiteUrl": "https://x.test",
}  # fmt: skip
CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
}


def message(method: str, number: int | str, params: dict[str, Any] | None) -> dict[str, Any]:
    said = {"jsonrpc": "2.0", "id": number, "method": method}
    return said if params is None else {**said, "params": params}


def initialize(version: str = "2025-11-25", name: str = "test", **capabilities: Any) -> dict[str, Any]:
    client = {**CLIENT, "name": name}
    params = {
        "protocolVersion": version,
        "capabilities": {**CAPABILITIES, **capabilities},
        "clientInfo": client,
    }
    return message("initialize", 0, params)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def modern(
    method: str, number: int | str, host: str = "test", able: dict[str, Any] | None = None, **params: Any
) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": {**CLIENT, "name": host},
        "io.modelcontextprotocol/clientCapabilities": CAPABILITIES if able is None else able,
        "progressToken": number,
    }
    return message(method, number, {"_meta": meta, **params})


def handshake(version: str, name: str) -> list[dict[str, Any]]:
    return [
        initialize(version, name),
        INITIALIZED,
        message("tools/list", "l", {"_meta": {"progressToken": 1}}),
    ]


def envelopes(name: str) -> list[dict[str, Any]]:
    wanted = {"toolsListChanged": True, "resourcesListChanged": True}
    return [
        modern("server/discover", "d", name),
        modern("subscriptions/listen", "s", name, notifications=wanted),
        modern("resources/list", 1, name),
        modern("tools/list", 2, name),
    ]


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with tools that say all about themselves and nothing."""
    daemon.tool("kit", TOOLS)
    daemon.describe()
    return daemon


class Link(HostLink):
    """Keeps the session that it has opened ahead."""

    opened: Session

    async def open_ahead(self, caller: LinkCaller) -> Session:
        self.opened = await super().open_ahead(caller)
        return self.opened


def surroundings(daemon: RunningDaemon) -> HostContext:
    return HostContext("s", str(daemon.project), "/")


@asynccontextmanager
async def serving(
    daemon: RunningDaemon, script: Script, place: HostContext | None = None, link: HostLink | None = None
) -> AsyncGenerator[threading.Event]:
    """The server of a host, whose SDK loads when the value is set, or when the host leaves."""
    loadable = threading.Event()

    def load() -> type[Kernel]:
        assert loadable.wait(SECONDS_MAX)
        return Kernel

    link = link or HostLink(daemon.socket, "running")
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(StdioServer(place or surroundings(daemon), link, script).serve(load))
        try:
            yield loadable
        finally:
            loadable.set()
            script.end()


async def session_ids(daemon: RunningDaemon) -> list[str]:
    """The sessions that the daemon has."""
    async with daemon.operate() as client:
        answer = await client.ask(client.operator.ListSessions, operator_pb2.ListSessionsRequest())
    return [session.session_id for session in answer.sessions]


def by_request(said: list[dict[str, Any]]) -> dict[Any, Any]:
    """What was said, by the request that it answers; lists of changes have no order."""
    return {each.get("id", each.get("method")): each for each in said}


@pytest.mark.parametrize("name", ["test", "claude-code", "copilot-cli"])
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, MODERN_VERSION])
async def test_the_answers_are_those_of_the_sdk(served: RunningDaemon, version: str, name: str) -> None:
    lines = encoded(*(envelopes(name) if version == MODERN_VERSION else handshake(version, name)))
    answers = 4 if version == MODERN_VERSION else 2

    script = Script(*lines)
    async with serving(served, script):
        await script.until(answers)
        said = by_request(script.said)
        assert len(script.said) == answers
    assert served.status().sessions == 0

    other = Script(*lines)
    async with (
        asyncio.timeout(SECONDS_MAX),
        sdk_serves(surroundings(served), HostLink(served.socket, "running"), other),
    ):
        await other.until(answers)
        assert by_request(other.said) == said


@pytest.mark.parametrize("era", ["handshake", "2026-07-28"])
async def test_the_session_of_the_first_list_is_that_of_the_calls(served: RunningDaemon, era: str) -> None:
    modernly = era == MODERN_VERSION
    script = Script(*encoded(*(envelopes("test") if modernly else handshake("2025-11-25", "test"))))
    answers = 4 if modernly else 2
    async with serving(served, script) as loadable:
        await script.until(answers)
        first = await session_ids(served)
        assert len(first) == 1
        more = modern("tools/call", 9) if modernly else message("tools/call", 9, {})
        more["params"] |= {"name": "kit_count", "arguments": {"text": "a b"}}
        script.add(more)
        loadable.set()
        await script.until(answers + 1)
        assert script.said[-1]["result"]["structuredContent"] == {"words": 2}
        assert await session_ids(served) == first
    assert len(script.said) == answers + (2 if modernly else 1)  # the subscription is closed at the end
    assert served.status().sessions == 0


@pytest.mark.parametrize("era", ["handshake", "2026-07-28"])
async def test_a_change_between_the_answer_and_the_sdk_is_told(served: RunningDaemon, era: str) -> None:
    modernly = era == MODERN_VERSION
    script = Script(*encoded(*(envelopes("test") if modernly else handshake("2025-11-25", "test"))))
    answers = 4 if modernly else 2
    link = Link(served.socket, "running")
    async with serving(served, script, link=link) as loadable:
        await script.until(answers)
        served.tool("new", "from toolcell import tool\n@tool\ndef new() -> None:\n    'New.'\n")
        while "new" not in link.opened.catalog.tools:
            await link.opened.reload()
        loadable.set()
        await script.until(answers + 1)
        assert script.said[answers]["method"] == "notifications/tools/list_changed"


async def first_list(daemon: RunningDaemon, road: str) -> set[str]:
    """The names of the tools that a host is first told, before the SDK is there or after."""
    shake, initialized, ask = encoded(*handshake("2025-11-25", "test"))
    script = Script(shake, initialized)
    async with serving(daemon, script) as loadable:
        if road == "SDK":
            loadable.set()
            script.add(message("prompts/list", 1, None))
            await script.answers(1)
        script.add(ask)
        (answer,) = await script.answers("l")
    return {tool["name"] for tool in answer["result"]["tools"]}


@pytest.mark.parametrize("road", ["ahead", "SDK"])
async def test_the_first_list_has_the_files_that_take_long_to_load(served: RunningDaemon, road: str) -> None:
    served.configure(IMPATIENT)
    served.tool("late", LATE)
    assert {"late", "kit_count"} <= await first_list(served, road)


@pytest.mark.parametrize("road", ["ahead", "SDK"])
async def test_the_first_list_waits_for_a_file_no_longer_than_hosts_do(
    served: RunningDaemon, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (server_module, host_session, host_offers):
        monkeypatch.setattr(module, "DESCRIBED_SECONDS_MAX", 0.01)
    served.configure(IMPATIENT)
    served.tool("late", LATE)
    assert "late" not in await first_list(served, road)


@pytest.mark.parametrize("answer", ["another project", "error", "no list", "nothing", "silence"])
async def test_a_host_with_roots_is_asked_once_and_listed_what_is_there(
    served: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    silent = answer in ("silence", "nothing")  # what is no answer is waited for no longer than one
    monkeypatch.setattr(server_module, "ROOTS_SECONDS", 0.05 if silent else SECONDS_MAX)
    other = tmp_path / ".toolcell" / "tools"
    other.mkdir(parents=True)
    (other / "other.py").write_text("from toolcell import tool\n@tool\ndef other() -> None:\n    'Other.'\n")
    roots: Any = {
        "another project": {"result": {"roots": [{"uri": 1}, {"uri": f"file://{tmp_path}", "name": "p"}]}},
        "error": {"error": {"code": -32603, "message": "no"}},
        "no list": {"result": {"roots": "here"}},
        "nothing": {"result": None},
    }
    script = Script(*encoded(initialize(roots={}), INITIALIZED, message("tools/list", "l", None)))
    place = HostContext("s", None, str(served.project))
    async with serving(served, script, place) as loadable:
        await script.until(2)
        assert script.said[1] == {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
        if answer in roots:
            script.add({"jsonrpc": "2.0", "id": 1, **roots[answer]})
        (listed,) = await script.answers("l")
        names = {tool["name"] for tool in listed["result"]["tools"]}
        assert ("other" in names, "kit_count" in names) == (
            answer == "another project",
            answer != "another project",
        )
        if answer == "another project":
            loadable.set()
            script.add(message("tools/call", 2, {"name": "other", "arguments": {}}))
            (called,) = await script.answers(2)
            assert called["result"]["isError"] is False
        assert [each.get("method") for each in script.said].count("roots/list") == 1
    assert served.status().sessions == 0


class Late(Script):
    """A host that says its roots in the turn of the loop in which they are given up."""

    async def write(self, line: bytes) -> None:
        await super().write(line)
        if self.said[-1].get("method") == "roots/list":
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}
            asyncio.get_running_loop().call_soon(self.add, answer)


async def test_roots_that_come_as_they_are_given_up_are_too_late(
    served: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "ROOTS_SECONDS", 0)
    script = Late(*encoded(initialize(roots={}), INITIALIZED, message("tools/list", "l", None)))
    async with serving(served, script, HostContext("s", None, str(served.project))):
        (listed,) = await script.answers("l")
    assert "kit_count" in {tool["name"] for tool in listed["result"]["tools"]}


class Rooted(Script):
    """A host that says its roots whenever it is asked for them."""

    asked = 0

    async def write(self, line: bytes) -> None:
        await super().write(line)
        if self.said[-1].get("method") == "roots/list":
            self.asked += 1
            self.add({"jsonrpc": "2.0", "id": self.said[-1]["id"], "result": {"roots": []}})


async def test_a_host_that_says_its_roots_changed_again_and_again_is_asked_once_more(
    served: RunningDaemon,
) -> None:
    able = {"listChanged": True}
    script = Rooted(*encoded(initialize(roots=able), INITIALIZED, message("tools/list", "a", None)))
    async with serving(served, script, HostContext("s", None, str(served.project))) as loadable:
        loadable.set()
        await script.answers("a")
        script.add(message("tools/list", "b", None))  # the session is there when it is answered
        await script.answers("b")
        asked = script.asked
        script.add(*({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"} for _ in range(50)))
        for number in range(103, 106):  # each has the daemon look again
            script.add(message("tools/list", number, None))
            await script.answers(number)
    assert 1 <= script.asked - asked <= 2


async def test_a_root_that_is_no_address_is_passed_over(served: RunningDaemon) -> None:
    script = Script(*encoded(initialize(roots={}), INITIALIZED, message("tools/list", "l", None)))
    async with serving(served, script, HostContext("s", None, "/")):
        await script.until(2)
        roots = [{"uri": "file://["}, {"uri": f"file://{served.project}"}]
        script.add({"jsonrpc": "2.0", "id": 1, "result": {"roots": roots}})
        (listed,) = await script.answers("l")
    assert "kit_count" in {tool["name"] for tool in listed["result"]["tools"]}


# What is read, and what is left to the SDK


class Nothing(HostSession):
    """Handlers of a server without tools."""

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[])


READ: list[dict[str, Any]] = [
    *(initialize(version) for version in HANDSHAKE_VERSIONS),
    initialize(roots={}),
    initialize(roots={"listChanged": True}),
    message("tools/list", 1, None),
    message("tools/list", "one", {}),
    message("tools/list", 1, {"_meta": {"progressToken": "p"}}),
    modern("server/discover", 1),
    modern("server/discover", 1, able={"roots": {"listChanged": True}}),
    modern("resources/list", -1),
    modern("tools/list", "\u00fc"),
    modern("subscriptions/listen", 1, notifications={"toolsListChanged": True}),
    message("ping", 1, {"_meta": {"more": None}}),
    message(
        "tools/call",
        1,
        {"name": "a", "arguments": {"a": [None, 1.5, {"b": "\u00fc"}]}, "_meta": {"callId": 1}},
    ),
    message("tools/call", "1", {"name": "", "_meta": {"progressToken": 0}}),
    modern("tools/call", 1, name="a", arguments={}),
]
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**70, "", "x", "\ud800", [], [1], {}, {"x": 1}, {"x": {}}, {"listChanged": 1}, float("nan"),
]  # fmt: skip


def mutants(value: Any) -> Iterator[Any]:
    """The same with one part of it other, missing, or one too many."""
    yield from ODD
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        yield {**found, "more": {}}
        yield {**found, "more": 1}
        yield {**found, "_meta": {}}
        for key in found:
            yield {name: each for name, each in found.items() if name != key}
            for other in mutants(found[key]):
                yield {**found, key: other}


@pytest.mark.parametrize("said", READ, ids=lambda said: said["method"])
async def test_what_is_read_is_no_mistake_to_the_sdk(said: dict[str, Any]) -> None:
    (line,) = encoded(said)
    assert requests.read(line) is not None
    assert requests.read(line[:-2]) is None
    tried = list(mutants(said))
    read = [mutant for mutant in tried if requests.read(*encoded(mutant)) is not None]
    assert len(tried) > 50
    assert len(read) < len(tried) // 2  # else it would guard against nothing
    for mutant in (said, *read):
        alone = said["method"] == "initialize" or MODERN_VERSION in json.dumps(mutant)
        first = [] if alone else [initialize() | {"id": "first"}]
        script = Script(*encoded(*first, mutant))
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            group.create_task(
                run_sdk(host_server(Nothing(HostContext("s", "/", "/"), HostLink(None, "running"))), script)
            )
            await script.until(len(first) + 1)
            assert not any("error" in each for each in script.said), mutant
            script.end()


async def test_a_line_that_is_too_long_is_answered_and_the_next_one_too(served: RunningDaemon) -> None:
    class Long(Script):
        """Begins with a line that cannot be read."""

        async def read(self) -> bytes:
            if not self.said:
                raise LineTooLong("A line has at most so many bytes.")
            return await super().read()

    script = Long(*encoded(initialize()))
    async with serving(served, script):
        await script.until(2)
    assert [each.get("id") for each in script.said] == [None, 0]
    assert script.said[0]["error"]["code"] == types.PARSE_ERROR


# The command, while there is no SDK


@pytest.fixture
def loadable(tmp_path: Path) -> Path:
    """What lets the SDK of `without_sdk` load, which then fails, when it is there."""
    return tmp_path / "loadable"


@pytest.fixture
def without_sdk(served: RunningDaemon, tmp_path: Path, loadable: Path) -> Generator[Wire]:
    """The command with an SDK that loads when a file is there; nothing else of it is."""
    for name in ("mcp", "mcp_types"):
        (tmp_path / f"{name}.py").write_text(f"""
import os, time
deadline = time.monotonic() + {SECONDS_MAX}
while not os.path.exists({str(loadable)!r}) and time.monotonic() < deadline:
    time.sleep(0.005)
raise ImportError("in vain")
""")
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", served.socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=served.project,
        env={**environment(served), "PYTHONPATH": str(tmp_path)},
    ) as process:
        try:
            yield Wire(process)
        finally:
            process.kill()


def say(wire: Wire, *lines: bytes) -> None:
    assert wire.process.stdin is not None
    wire.process.stdin.write(b"".join(lines))
    wire.process.stdin.flush()


@pytest.mark.parametrize("era", ["handshake", "2026-07-28"])
def test_the_tools_are_listed_while_there_is_no_sdk(without_sdk: Wire, loadable: Path, era: str) -> None:
    """As real agents do: each message after the answer to the one before."""
    answers: list[dict[str, Any]] = []
    for each in envelopes("test") if era == MODERN_VERSION else handshake("2025-11-25", "test"):
        say(without_sdk, *encoded(each))
        if "id" in each:
            answers.append(without_sdk.receive())
    names = [tool["name"] for tool in answers[-1]["result"]["tools"]]
    assert names == ["kit_count", "kit_silent", "toolcell_read_output"]
    loadable.touch()
    assert without_sdk.process.wait(SECONDS_MAX) == 69
    assert without_sdk.process.stderr is not None
    assert install_command("mcp").encode() in without_sdk.process.stderr.read()


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT", "closed"])
@pytest.mark.parametrize("after", ["nothing", "the list"])
def test_the_end_of_the_host_waits_for_no_sdk(
    served: RunningDaemon, without_sdk: Wire, tmp_path: Path, end: str, after: str
) -> None:
    process = without_sdk.process
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    say(without_sdk, *encoded(initialize()))
    without_sdk.receive()
    if after == "the list":
        say(without_sdk, *encoded(INITIALIZED, message("tools/list", 1, {})))
        without_sdk.receive()
        assert served.status().sessions == 1
        say(without_sdk, *encoded(message("ping", 2, None)))
    if end == "eof":
        process.stdin.close()
    elif end == "closed":
        process.stdout.close()
        with suppress(
            BrokenPipeError
        ):  # it may have ended by the answer to the ping, which it could not write
            process.stdin.write(encoded(modern("server/discover", 3), initialize())[after == "nothing"])
            process.stdin.close()
    else:
        process.send_signal(signal.Signals[end])
    assert process.wait(SECONDS_MAX) == 0
    assert process.stderr.read() == b""
    assert served.status().sessions == 0


def test_what_is_no_message_waits_for_the_sdk(served: RunningDaemon) -> None:
    lines = [
        b"hello?\n",
        b"[" * 100_000 + b"\n",
        b"\n",
        b'{"jsonrpc": "2.0", "id": 3, "method": "ping"}\n',
    ] * KEPT_MAX
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", served.socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=served.project,
        env=environment(served),
    ) as process:
        try:
            wire = Wire(process)
            say(wire, *encoded(initialize()), *lines)
            assert wire.receive()["id"] == 0
            said = [wire.receive() for _ in range(3 * KEPT_MAX)]
            assert [each["id"] for each in said if "result" in each] == [3] * KEPT_MAX
            assert [each["error"]["code"] for each in said if "error" in each] == [
                types.PARSE_ERROR
            ] * 2 * KEPT_MAX
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
