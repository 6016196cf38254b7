"""`toolcell mcp --http` in front of a real daemon: requests that are accepted, and those that are refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import socket as sockets
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastmcp import Client as FastClient
from fastmcp.client.transports import StreamableHttpTransport
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import EventMessage
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.daemons import RunningDaemon

from toolcell.adapters.http import auth, server
from toolcell.adapters.http.auth import AccessGuard
from toolcell.adapters.http.server import Address, HttpServer
from toolcell.adapters.http.token import BadToken, token_in_environment, token_in_file
from toolcell.adapters.mcp import HttpSessions, http_sessions
from toolcell.adapters.mcp.http_sessions import RecentEvents
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("era")]

SECONDS_MAX = 30
"""For what takes a second at most; other tests may have the processors."""
TOKEN = "a-token-of-the-tests-0123456789"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
ALLOWED = {**ACCEPT, "Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True, slots=True)
class Door:
    """A server, and where it listens."""

    process: subprocess.Popen[bytes] | None
    url: str
    project: Path

    @property
    def port(self) -> int:
        return int(self.url.removesuffix("/mcp").rpartition(":")[2])


@contextmanager
def serving(daemon: RunningDaemon, token: Path) -> Generator[Door]:
    """The command, until the end of the block."""
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "toolcell.cli", "mcp", "--http", "0"),
            *("--token-file", str(token), "--socket", daemon.socket),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory), "LC_ALL": "C.UTF-8"},
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
            assert found, line
            assert str(token) in process.stdout.readline().decode()
            yield Door(process, found[0], daemon.project)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
            assert not said, said
        finally:
            process.kill()


@pytest.fixture(scope="module")
def door(kit: RunningDaemon) -> Iterator[Door]:
    """One server for all tests that leave it as it is."""
    token = kit.directory / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    with serving(kit, token) as door:
        yield door


@pytest.fixture(params=["legacy", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol that the host speaks."""
    mode: str = request.param
    return mode


@asynccontextmanager
async def host(door: Door, era: str, **options: Any) -> AsyncGenerator[Client]:
    """A host with the token."""
    async with (
        asyncio.timeout(SECONDS_MAX),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=SECONDS_MAX) as http,
        Client(streamable_http_client(door.url, http_client=http), mode=era, **options) as client,
    ):
        yield client


def text(result: types.CallToolResult) -> str:
    """The one text of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def answer(port: int, data: bytes, *, wait: bool = True) -> tuple[int, bytes]:
    """Send bytes, and what comes back until the server closes: the status and everything else; 0 for nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(SECONDS_MAX):
            head = await reader.readuntil(b"\r\n") if wait else b""
            rest = await reader.read() if b"close" in (more := await reader.readuntil(b"\r\n\r\n")) else b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, b""
    finally:
        writer.transport.abort()
    return int(head.split()[1]), more + rest


def request(
    body: object = None,
    *,
    method: str = "POST",
    target: str = "/mcp",
    headers: dict[str, str] | None = None,
    more: str = "",
) -> bytes:
    """A request as bytes; `more` are lines of its head."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = {"Content-Length": str(len(content)), **(ALLOWED if headers is None else headers)}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}{more}\r\n".encode() + content


def hosted(port: int) -> str:
    return f"Host: 127.0.0.1:{port}\r\n"


# Hosts that may


async def test_a_host_lists_calls_and_reads_what_went_wrong(door: Door, era: str) -> None:
    async with host(door, era) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= {
            "kit_echo",
            "toolcell_read_output",
        }
        assert text(await client.call_tool("kit_echo", {"text": "hé"})) == "hé"
        wrong = await client.call_tool("kit_echo", {"style": "quiet"})
        assert wrong.is_error
        assert "text: is missing" in text(wrong)
        assert text(await client.call_tool("kit_fails", {"why": "fire"})) == "It did not work: fire"
        (picture,) = (await client.call_tool("kit_picture")).content
        assert isinstance(picture, types.ImageContent)
        first, second = await asyncio.gather(
            client.call_tool("kit_echo", {"text": "one"}), client.call_tool("kit_echo", {"text": "two"})
        )
        assert (text(first), text(second)) == ("one", "two")
        who = json.loads(text(await client.call_tool("kit_whoami")))
    assert (who["agent"], who["agent_name"], who["directory"]) == ("mcp", "main", str(door.project))
    assert who["session_id"].startswith("mcp-")


async def test_progress_and_questions_reach_the_host(door: Door, era: str) -> None:
    said: list[str | None] = []
    answers = iter([{"allow": "once"}, {"allow": "no"}])

    async def see(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={**next(answers)})

    async with host(door, era, elicitation_callback=person) as client:
        assert text(await client.call_tool("kit_steps", {"count": 3}, progress_callback=see)) == "3 steps"
        assert text(await client.call_tool("kit_asks", {"path": "a"})) == "wrote a"
        assert (await client.call_tool("kit_asks", {"path": "b"})).is_error
    assert said[-1] == "step 3"


async def test_a_typed_value_is_structured_content_over_http_too(door: Door, era: str) -> None:
    async with host(door, era) as client:
        tools = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        assert tools["kit_whoami"] == {"type": "object", "additionalProperties": {"type": "string"}}
        result = await client.call_tool("kit_whoami")
        assert result.structured_content == json.loads(text(result))
    transport = StreamableHttpTransport(door.url, headers={"Authorization": f"Bearer {TOKEN}"})
    async with FastClient(transport, timeout=SECONDS_MAX) as fast:
        assert (await fast.call_tool("kit_whoami")).data.keys() == result.structured_content.keys()


async def test_a_host_over_http_does_not_choose_the_directory(door: Door, era: str) -> None:
    async def roots(context: Any) -> types.ListRootsResult:
        pytest.fail("it was asked for its roots")

    async with host(door, era, list_roots_callback=roots) as client:
        who = json.loads(text(await client.call_tool("kit_whoami")))
    assert who["directory"] == str(door.project)


async def until(true: Callable[[], bool]) -> None:
    """Wait for what another process does, and has no word for."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.01)


async def begun(kit: RunningDaemon, name: str) -> int:
    """The process of the one call under way, once its tool has said that it is there."""
    await until((kit.project / f"{name}.there").exists)
    answer = await asyncio.to_thread(
        kit.ask, "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (worker,) = (worker for worker in answer.workers if worker.call_id and worker.state == "busy")
    return worker.pid


def busy(kit: RunningDaemon) -> bool:
    """Whether a call runs."""
    answer = kit.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    return any(worker.call_id for worker in answer.workers)


def gone(pid: int) -> bool:
    """Wait until a process is dead, for a while."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(SECONDS_MAX * 1000))
    finally:
        os.close(process)


@pytest.mark.parametrize("tool", ["waits", "deaf"])
async def test_a_cancelled_call_is_stopped(door: Door, kit: RunningDaemon, era: str, tool: str) -> None:
    name = f"cancelled-{tool}-{era}"
    async with host(door, era) as client:
        scope = anyio.CancelScope()
        async with asyncio.TaskGroup() as group:

            async def call() -> None:
                with scope:
                    await client.call_tool(f"kit_{tool}", {"name": name})

            group.create_task(call())
            pid = await begun(kit, name)
            scope.cancel()
        assert await asyncio.to_thread(gone, pid)
        assert (door.project / f"{name}.stopped").exists() == (tool == "waits")
        assert text(await client.call_tool("kit_echo", {"text": "on"})) == "on"


async def opened(door: Door) -> str:
    """An MCP session, by its id."""
    _, said = await answer(door.port, request(INITIALIZE, more=hosted(door.port) + "Connection: close\r\n"))
    found = re.search(rb"mcp-session-id: (\S+)", said)
    assert found, said
    return found[1].decode()


async def test_the_end_of_an_mcp_session_ends_its_calls_and_its_session(
    door: Door, kit: RunningDaemon
) -> None:
    before = await asyncio.to_thread(kit.status)
    session_id = await opened(door)
    mine = hosted(door.port) + f"Mcp-Session-Id: {session_id}\r\nConnection: close\r\n"
    call = {
        **PING,
        "method": "tools/call",
        "params": {"name": "kit_waits", "arguments": {"name": "deleted"}},
    }
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(answer(door.port, request(call, more=mine)))
        pid = await begun(kit, "deleted")
        assert (await asyncio.to_thread(kit.status)).sessions == before.sessions + 1
        status, _ = await answer(door.port, request(method="DELETE", more=mine))
        assert status == 200
    assert waiting.result()[0] == 200  # it had begun, as a stream
    assert await asyncio.to_thread(gone, pid)
    status, _ = await answer(door.port, request(PING, more=mine))
    assert status == 404
    await until(lambda: kit.status().sessions == before.sessions)


LATE = '''
import time
from pathlib import Path
from toolcell import ToolContext, tool

@tool
def holds(context: ToolContext) -> str:
    """Return when the host is gone."""
    directory = Path(context.directory)
    (directory / "held.there").touch()
    deadline = time.monotonic() + 30
    while not (directory / "held.go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    return "held until then"
'''


async def test_a_host_whose_stream_has_broken_comes_back_for_the_result(
    door: Door, kit: RunningDaemon
) -> None:
    kit.tool("late", LATE)
    session_id = await opened(door)
    mine = hosted(door.port) + f"Mcp-Session-Id: {session_id}\r\nMcp-Protocol-Version: 2025-11-25\r\n"
    call: dict[str, Any] = {
        **PING,
        "method": "tools/call",
        "params": {"name": "late_holds", "arguments": {}},
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(request(call, more=mine))
    async with asyncio.timeout(SECONDS_MAX):
        began = await reader.readuntil(b"retry: 1000")
    (event,) = re.findall(rb"^id: (\S+)", began, re.MULTILINE)
    await until((kit.project / "held.there").exists)
    writer.transport.abort()  # as a network that is gone
    (kit.project / "held.go").touch()
    await until(lambda: not busy(kit))
    echo: dict[str, Any] = {
        **call,
        "id": 2,
        "params": {"name": "kit_echo", "arguments": {"text": "after it"}},
    }
    _, said = await answer(door.port, request(echo, more=mine + "Connection: close\r\n"))
    assert b"after it" in said  # the daemon tells outcomes in their order, so the first one is kept by now

    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(request(method="GET", more=mine + f"Last-Event-ID: {event.decode()}\r\n"))
    async with asyncio.timeout(SECONDS_MAX):
        came = await reader.readuntil(b"held until")
    writer.transport.abort()
    assert b'"id":1,' in came
    assert b"after it" not in came

    # What is not known is no stream, and what is not of this session neither.
    other = hosted(door.port) + f"Mcp-Session-Id: {await opened(door)}\r\nConnection: close\r\n"
    for strange in ("0", "999999", "x", event.decode() * 9):
        _, said = await answer(door.port, request(method="GET", more=other + f"Last-Event-ID: {strange}\r\n"))
        assert b"held" not in said
    for each in (mine + "Connection: close\r\n", other):
        assert (await answer(door.port, request(method="DELETE", more=each)))[0] == 200


async def test_of_the_messages_of_a_session_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "EVENTS_MAX", 4)
    monkeypatch.setattr(http_sessions, "EVENT_BYTES_MAX", 1000)
    events, came = RecentEvents(), list[str]()

    async def send(event: EventMessage) -> None:
        assert isinstance(event.message, types.JSONRPCNotification)
        came.append(event.message.method)

    def note(method: str) -> types.JSONRPCNotification:
        return types.JSONRPCNotification(jsonrpc="2.0", method=method)

    begun = await events.store_event("a", None)
    first = await events.store_event("a", note("one"))
    await events.store_event("b", note("two"))
    await events.store_event("a", note("three"))
    assert await events.replay_events_after(begun, send) == "a"
    assert came == ["one", "three"]
    await events.store_event("a", note("four"))
    assert await events.replay_events_after(begun, send) is None  # it was dropped
    assert await events.replay_events_after(first, send) == "a"
    assert came == ["one", "three", "three", "four"]
    large = await events.store_event("a", note("x" * 2000))
    assert await events.replay_events_after(large, send) is None
    assert await events.replay_events_after(first, send) is None


@contextmanager
def patient(daemon: RunningDaemon) -> Generator[None]:
    """Have a daemon give aborted tools time to end by themselves, also where other programs have the processors."""
    before = daemon.config.read_text()
    daemon.configure('[daemon]\nabort_grace = "60s"\n')
    try:
        yield
    finally:
        daemon.config.write_text(before)
        daemon.reload()


def test_the_end_of_the_server_stops_what_runs(kit: RunningDaemon, tmp_path: Path) -> None:
    token = tmp_path / "made" / "token"
    with patient(kit), serving(kit, token) as door:
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        call: dict[str, Any] = {
            "name": "kit_waits",
            "arguments": {"name": "ended"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }
        headers = {
            **ACCEPT,
            "Authorization": f"Bearer {token.read_text().strip()}",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "kit_waits",
        }
        body: dict[str, Any] = {**PING, "method": "tools/call", "params": call}

        async def interrupted() -> int:
            async with asyncio.TaskGroup() as group:
                data = request(body, headers=headers, more=hosted(door.port))
                waiting = group.create_task(answer(door.port, data))
                pid = await begun(kit, "ended")
                # A connection that has sent half a request does not keep the server either.
                _, writer = await asyncio.open_connection("127.0.0.1", door.port)
                writer.write(request(PING, headers=headers, more=hosted(door.port))[:-3])
                assert door.process is not None
                door.process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(gone, pid)
            writer.transport.abort()
            return waiting.result()[0]

        assert asyncio.run(interrupted()) in (0, 503)
    assert (kit.project / "ended.stopped").exists()


# Other requests


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer wrong-token-0123456789\r\n",
        f"Authorization: Bearer {TOKEN}x\r\n",
        f"Authorization: Bearer {TOKEN[:-1]}\r\n",
        f"Authorization: Bearer {TOKEN.upper()}\r\n",
        f"Authorization: Basic {TOKEN}\r\n",
        f"Authorization: {TOKEN}\r\n",
        f"Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer wrong\r\n",
        f"Authorization: Bearer wrong\r\nAuthorization: Bearer {TOKEN}\r\n",
        f"Authorization: Bearer {TOKEN}, Bearer {TOKEN}\r\n",
        "Authorization: Bearer \xe9\r\n",
        f"X-Authorization: Bearer {TOKEN}\r\n",
        f"Cookie: token={TOKEN}\r\n",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_without_the_token_nobody_comes_in(door: Door, authorization: str, method: str) -> None:
    more = hosted(door.port) + authorization
    status, said = await answer(
        door.port, request(INITIALIZE, method=method, target="/mcp", headers=ACCEPT, more=more)
    )
    assert status == 401
    assert b"www-authenticate: Bearer" in said.lower().replace(b"bearer", b"Bearer")
    assert TOKEN.encode() not in said
    assert b"mcp-session-id" not in said.lower()


async def test_a_token_in_the_address_is_none(door: Door) -> None:
    data = request(INITIALIZE, target=f"/mcp?token={TOKEN}", headers=ACCEPT, more=hosted(door.port))
    assert (await answer(door.port, data))[0] == 401


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://evil.example:{port}",
        "https://localhost:{port}",
        "http://localhost",
        "http://localhost:{port}.evil.example",
        "http://localhost:{port}@evil.example",
        "http://127.0.0.1:1",
        "null",
        "",
        "file://",
    ],
)
async def test_a_page_of_another_origin_is_refused_with_the_token_too(door: Door, origin: str) -> None:
    more = hosted(door.port) + f"Origin: {origin.format(port=door.port)}\r\n"
    assert (await answer(door.port, request(INITIALIZE, more=more)))[0] == 403
    two = hosted(door.port) + f"Origin: http://localhost:{door.port}\r\nOrigin: http://evil.example\r\n"
    assert (await answer(door.port, request(INITIALIZE, more=two)))[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://localhost:{port}", "http://127.0.0.1:{port}", "http://[::1]:{port}"]
)
async def test_an_origin_of_its_own_may(door: Door, origin: str) -> None:
    more = hosted(door.port) + f"Origin: {origin.format(port=door.port)}\r\nConnection: close\r\n"
    assert (await answer(door.port, request(INITIALIZE, more=more)))[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost",
        "localhost:1",
        "localhost:{port}.evil.example",
        "localhost.evil.example:{port}",
        "127.0.0.1",
        "127.0.0.2:{port}",
        "[::]:{port}",
        "0.0.0.0:{port}",
        "",
    ],
)
async def test_another_host_is_refused_as_a_name_may_have_been_bound_to_us(door: Door, name: str) -> None:
    more = f"Host: {name.format(port=door.port)}\r\n"
    assert (await answer(door.port, request(INITIALIZE, more=more)))[0] == 421


async def test_two_hosts_or_none_are_refused(door: Door) -> None:
    more = hosted(door.port) + "Host: evil.example\r\n"
    assert (await answer(door.port, request(INITIALIZE, more=more)))[0] == 400
    assert (await answer(door.port, request(INITIALIZE)))[0] == 400
    old = request(INITIALIZE).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert (await answer(door.port, old))[0] == 421


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/mcp/",
        "//mcp",
        "/mcp//",
        "/./mcp",
        "/x/../mcp",
        "/mcp/..%2f..",
        "/%6dcp",
        "/MCP",
        "/mcp%00",
        "/mcp;x",
        "/mcp\\",
        "/../../etc/passwd",
        "/.well-known/oauth-protected-resource",
        "http://evil.example/mcp",
        "*",
    ],
)
async def test_there_is_one_path(door: Door, target: str) -> None:
    data = request(INITIALIZE, target=target, more=hosted(door.port))
    assert (await answer(door.port, data))[0] == 404


@pytest.mark.parametrize("method", ["PUT", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "GETS"])
async def test_other_methods_are_refused(door: Door, method: str) -> None:
    data = request(method=method, more=hosted(door.port))
    assert (await answer(door.port, data))[0] in (400, 405)


async def test_a_web_socket_is_not_opened(door: Door) -> None:
    upgrade = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    )
    data = request(method="GET", headers=ACCEPT, more=hosted(door.port) + upgrade)
    assert (await answer(door.port, data))[0] == 401


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(door: Door) -> None:
    head = {**ALLOWED, "Content-Length": str(auth.BODY_BYTES_MAX + 1)}
    status, _ = await answer(door.port, request(headers=head, more=hosted(door.port)))
    assert status == 413
    monstrous = {**ALLOWED, "Content-Length": "9" * 30}
    assert (await answer(door.port, request(headers=monstrous, more=hosted(door.port))))[0] in (400, 413)


async def test_a_body_without_a_length_is_bounded_too(door: Door) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in ALLOWED.items())
    start = f"POST /mcp HTTP/1.1\r\n{hosted(door.port)}{head}Transfer-Encoding: chunked\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    sent = 0
    try:
        async with asyncio.timeout(SECONDS_MAX):
            writer.write(start.encode())
            answered = asyncio.ensure_future(reader.readline())
            while not answered.done() and sent <= 2 * auth.BODY_BYTES_MAX:
                writer.write(chunk)
                sent += 0x100000
                drained = asyncio.ensure_future(writer.drain())
                await asyncio.wait({answered, drained}, return_when="FIRST_COMPLETED")
                drained.cancel()
                await asyncio.gather(drained, return_exceptions=True)
            # A reset, by what was sent and not read, may be here before the answer.
            with suppress(ConnectionError):
                assert (await answered).split()[1] == b"413"
    finally:
        writer.transport.abort()
    assert sent <= 2 * auth.BODY_BYTES_MAX


@pytest.mark.parametrize(
    "head",
    [
        b"POST /mcp HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: -1\r\n",
        b"POST  /mcp\r\n",
        b"POST /mcp HTTP/1.1\r\nX : y\r\n",
        b"POST /mcp HTTP/1.1\r\nX: y\x00\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"POST /mcp HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n",
    ],
)
async def test_a_head_that_is_none_is_answered_and_closed(door: Door, head: bytes) -> None:
    data = head + hosted(door.port).encode() + b"\r\n\r\n"
    assert (await answer(door.port, data))[0] in (0, 400)


@pytest.mark.parametrize(
    "body", ["", "[", "[" * 100_000, '{"a": 1' + "0" * 10_000 + "}", "\udcff", "[]", "{}", "1", "null"]
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28", "1999-01-01", "x" * 5000])
async def test_a_body_that_is_no_message_is_an_error_and_no_session(
    door: Door, kit: RunningDaemon, body: str, version: str
) -> None:
    content = body.encode(errors="surrogateescape")
    headers = {**ALLOWED, "Content-Length": str(len(content)), "MCP-Protocol-Version": version}
    data = request(headers=headers, more=hosted(door.port) + "Connection: close\r\n")
    status, said = await answer(door.port, data + content)
    assert 400 <= status < 500
    assert b"Traceback" not in said


@pytest.mark.parametrize("session_id", ["x", "0" * 32, "../../etc", "\xe9", "x" * 10_000])
async def test_a_session_that_is_not_there_is_not_found(door: Door, session_id: str) -> None:
    for method in ("POST", "GET", "DELETE"):
        more = hosted(door.port) + f"Mcp-Session-Id: {session_id}\r\nConnection: close\r\n"
        status, _ = await answer(door.port, request(PING, method=method, more=more))
        assert status == 404


def modern(method: str, name: str, params: dict[str, Any], client: object = None) -> bytes:
    """A request of 2026-07-28, without its Host."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"}
        if client is not None
        else None,
    }
    body = {**PING, "method": method, "params": {**params, "_meta": meta}}
    heads = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": name} if name else {}),
    }
    return request(body, headers={**ALLOWED, **heads, "Connection": "close", "Host": "127.0.0.1:PORT"})


@pytest.mark.parametrize("client", ["", "\x00", "a\nb", "\ud800", "é" * 1000, "x" * 100_000, 1, [], "\u202e"])
async def test_a_strange_name_is_no_harm(door: Door, client: object) -> None:
    data = modern("tools/call", "kit_whoami", {"name": "kit_whoami", "arguments": {}}, client)
    status, said = await answer(door.port, at(door, data))
    assert (status, b"Traceback" in said) in ((200, False), (400, False))
    listing = modern("tools/list", "", {}, client)
    assert (await answer(door.port, at(door, listing)))[0] in (200, 400)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kit_echo", {"text": "\ud800"}),
        ("kit_echo", {"\ud800": 1}),
        ("kit_\ud800", {}),
        ("toolcell_read_output", {"output_id": "\ud800"}),
        ("toolcell_read_output", {"output_id": "é"}),
        ("toolcell_read_output", {"output_id": "o", "start": 1e300}),
        ("toolcell_read_output", {"output_id": "o", "start": 2**62 - 1, "length": 2**61}),
        ("toolcell_read_output", {"output_id": "../../etc/passwd"}),
        ("", {}),
        ("x" * 100_000, {}),
    ],
)
async def test_strange_arguments_are_the_callers_fault(
    door: Door, tool: str, arguments: dict[str, Any]
) -> None:
    head = "x" if not tool.isascii() or len(tool) > 1000 else tool
    data = modern("tools/call", head, {"name": tool, "arguments": arguments}, "strange")
    status, said = await answer(door.port, at(door, data))
    assert status in (200, 400)
    assert b'"code":-32603' not in said.replace(b" ", b"")  # no fault of ours
    if status == 200:
        assert b'"isError":true' in said.replace(b" ", b"")


def at(door: Door, data: bytes) -> bytes:
    return data.replace(b"127.0.0.1:PORT", f"127.0.0.1:{door.port}".encode())


async def test_after_all_that_the_server_serves(door: Door, era: str) -> None:
    async with host(door, era) as client:
        assert text(await client.call_tool("kit_echo", {"text": "still"})) == "still"


# Time and number, with smaller figures in this process


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    """An application behind a gate."""
    await PlainTextResponse(f"{len((await receive())['body'])} bytes")(scope, receive, send)


@asynccontextmanager
async def listening(app: Any) -> AsyncGenerator[int]:
    """An application behind a gate and a listener in this process, by its port."""
    socket = HttpServer(Address("127.0.0.1", 0))
    try:
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            group.create_task(
                socket.serve(
                    AccessGuard(app, authorities=socket.address.authorities, token=TOKEN, path="/mcp")
                )
            )
            try:
                yield socket.address.port
            finally:
                socket.end()
    finally:
        socket.close()


async def test_a_body_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.2)
    async with listening(ok) as port:
        head = {**ALLOWED, "Content-Length": "10"}
        data = request(headers=head, more=hosted(port))
        status, _ = await answer(port, data + b"123456789")
        assert status == 408
        status, said = await answer(
            port, data + b"1234567890" + request(headers=ALLOWED, more="Connection: close\r\n")
        )
        assert status == 200
        assert b"408" not in said


async def test_a_head_that_comes_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    async with listening(ok) as port:
        for beginning in (
            b"",
            b"POST /mcp HTTP/1.1\r\n" + hosted(port).encode(),
            request(PING, more=hosted(port)),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            said = b""
            with suppress(ConnectionError):
                said = await reader.read()  # until it is closed
            assert said.startswith(b"HTTP/1.1 200" if beginning.endswith(b"}") else b"")
            writer.transport.abort()


async def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    async with listening(ok) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await answer(port, b"")
        assert (await answer(port, request(PING, more=hosted(port))))[0] == 0
        for _, writer in held:
            writer.transport.abort()
        async with asyncio.timeout(SECONDS_MAX):
            while (await answer(port, request(PING, more=hosted(port))))[0] != 200:
                await asyncio.sleep(0.01)  # it hears of the ends in its own time


@asynccontextmanager
async def receiving(kit: RunningDaemon, timeout_seconds: float | None = None) -> AsyncGenerator[Door]:
    """The whole server in this process."""
    async with (
        HttpSessions(
            str(kit.project), socket=kit.socket, daemon="running", timeout_seconds=timeout_seconds
        ) as house,
        listening(house) as port,
    ):
        yield Door(None, f"http://127.0.0.1:{port}/mcp", kit.project)
    for (
        task
    ) in asyncio.all_tasks():  # of the library for streams, one for each loop; ours end with the process
        if "_shutdown_watcher" in repr(task):
            task.cancel()


async def status_in(door: Door, session_id: str, body: dict[str, Any]) -> int:
    """The status of a request in a session."""
    mine = hosted(door.port) + f"Mcp-Session-Id: {session_id}\r\nConnection: close\r\n"
    return (await answer(door.port, request(body, more=mine)))[0]


async def test_a_silent_session_makes_room_for_another_one(
    kit: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_MAX", 2)
    listing: dict[str, Any] = {**PING, "method": "tools/list", "params": {}}
    async with receiving(kit) as door:
        used, silent = await opened(door), await opened(door)
        assert await status_in(door, used, listing) == 200
        await opened(door)
        assert [await status_in(door, each, listing) for each in (used, silent)] == [200, 404]


async def test_the_time_limit_of_calls_holds_in_sessions(kit: RunningDaemon) -> None:
    call = {**PING, "method": "tools/call", "params": {"name": "kit_waits", "arguments": {"name": "limited"}}}
    async with receiving(kit, timeout_seconds=0.5) as door:
        mine = hosted(door.port) + f"Mcp-Session-Id: {await opened(door)}\r\nConnection: close\r\n"
        _, said = await answer(door.port, request(call, more=mine))
    assert b"timed_out" in said


async def test_there_are_only_so_many_sessions_with_calls(
    kit: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_MAX", 2)
    call = {**PING, "method": "tools/call", "params": {"name": "kit_waits", "arguments": {"name": "busy"}}}
    before = (await asyncio.to_thread(kit.status)).calls
    async with receiving(kit) as door:
        first, second = await opened(door), await opened(door)
        calls = [asyncio.create_task(status_in(door, each, call)) for each in (first, second)]
        await until(lambda: kit.status().calls == before + 2)
        last = hosted(door.port) + "Connection: close\r\n"
        status, said = await answer(door.port, request(INITIALIZE, more=last))
        assert (status, b"All 2 sessions have requests or calls under way" in said) == (503, True)
        mine = last + f"Mcp-Session-Id: {first}\r\n"
        assert (await answer(door.port, request(method="DELETE", more=mine)))[0] == 200
        await opened(door)
        mine = last + f"Mcp-Session-Id: {second}\r\n"
        assert (await answer(door.port, request(method="DELETE", more=mine)))[0] == 200
        await asyncio.gather(*calls)


async def test_hosts_without_sessions_make_room_for_each_other(
    kit: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_MAX", 2)
    before = (await asyncio.to_thread(kit.status)).sessions
    async with receiving(kit) as door:
        for number in range(4):
            info = types.Implementation(name=f"host {number}", version="1")
            async with host(door, "2026-07-28", client_info=info) as client:
                who = json.loads(text(await client.call_tool("kit_whoami")))
                assert who["agent"] == f"host {number}"
        await until(lambda: kit.status().sessions <= before + 2)  # those that went are leaving


async def test_who_is_idle_leaves(kit: RunningDaemon, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "IDLE_SECONDS", 0.3)
    before = (await asyncio.to_thread(kit.status)).sessions
    async with receiving(kit) as door:
        if era == "legacy":
            session_id = await opened(door)
            mine = hosted(door.port) + f"Mcp-Session-Id: {session_id}\r\nConnection: close\r\n"
            listing: dict[str, Any] = {**PING, "method": "tools/list", "params": {}}
            assert (await answer(door.port, request(listing, more=mine)))[0] == 200
        else:
            async with host(door, era) as client:
                await client.list_tools()
        await until(lambda: kit.status().sessions == before)
        async with host(door, era) as client:
            assert text(await client.call_tool("kit_echo", {"text": "again"})) == "again"


# The token, and the command line


def test_a_token_is_made_once_and_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "state" / "mcp.token")
    before = os.umask(0o277)
    try:
        token, made = token_in_file(path)
    finally:
        os.umask(before)
    assert made
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert len(token) >= 40
    assert token_in_file(path) == (token, False)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_token_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(mode)
    with pytest.raises(BadToken, match="chmod 600"):
        token_in_file(str(path))


def test_a_planted_link_is_no_token(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (tmp_path / "token").symlink_to(theirs)
    with pytest.raises(BadToken, match="link"):
        token_in_file(str(tmp_path / "token"))
    assert not theirs.exists()
    theirs.write_text(TOKEN)
    theirs.chmod(0o600)
    with pytest.raises(BadToken, match="link"):
        token_in_file(str(tmp_path / "token"))


@pytest.mark.parametrize(
    "said", ["", "short", "with a blank in between", "x" * 2000, "\xe9" * 20, "line\nline" * 4]
)
def test_what_is_no_token_is_refused(tmp_path: Path, said: str) -> None:
    path = tmp_path / "token"
    path.write_text(said)
    path.chmod(0o600)
    with pytest.raises(BadToken, match="16 or more"):
        token_in_file(str(path))
    with pytest.raises(BadToken, match="16 or more"):
        token_in_environment("NAME", {"NAME": said})
    with pytest.raises(BadToken, match="no environment variable"):
        token_in_environment("OTHER", {"NAME": said})


def test_a_token_is_no_pipe_and_no_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    try:
        for path in (tmp_path / "pipe", tmp_path):
            with pytest.raises(BadToken):
                token_in_file(str(path))
    finally:
        (tmp_path / "pipe").unlink()


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "mcp", *words],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--http", "192.0.2.1:0"], "no token is set"),
        (["--http", "[2001:db8::1]:0"], "no token is set"),
        (["--http", "0.0.0.0:0", "--token-env", "T"], "is every address"),
        (["--http", "[::]:0", "--token-env", "T"], "is every address"),
        (["--http", "example.org:0", "--token-env", "T"], "--http 127.0.0.1:8137"),
        (["--http", "70000"], "is no port"),
        (["--http", "x"], "is no port"),
        (["--http", "-1"], "is no port"),
        (["--http", "0", "--token-env", "NOT_THERE"], "no environment variable NOT_THERE"),
        (["--http", "0", "--token-env", "T", "--token-file", "/x"], "two tokens"),
        (["--token-env", "T"], "--http PORT"),
    ],
)
def test_what_cannot_be_served_is_said(words: list[str], said: str) -> None:
    done = command(*words, T=TOKEN)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.timeout(30)
def test_a_socket_whose_server_takes_no_connections_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "http.sock")
    with sockets.socket(sockets.AF_UNIX) as busy, sockets.socket(sockets.AF_UNIX) as waiting:
        busy.bind(path)
        busy.listen(0)
        waiting.connect(path)  # so that its backlog is full
        with pytest.raises(OSError, match="Address already in use"):
            HttpServer(Address("", 0, path))
    os.unlink(path)


def test_a_port_that_is_taken_is_said() -> None:
    taken = HttpServer(Address("127.0.0.1", 0))
    try:
        taken._socket.listen()  # pyright: ignore[reportPrivateUsage]
        done = command("--http", str(taken.address.port), "--token-env", "T", T=TOKEN)
    finally:
        taken.close()
    assert done.returncode == 2
    assert "Take another port" in done.stderr
