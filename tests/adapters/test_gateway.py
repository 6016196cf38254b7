"""`toolcell http` in front of a real daemon: the documented routes, calls, sessions, events, and hostile clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.adapters.conftest import KIT
from tests.daemons import RunningDaemon

from toolcell.adapters.gateway import feed, sessions
from toolcell.adapters.gateway.feed import Feed, FeedEvent

pytestmark = pytest.mark.anyio

SECONDS_MAX = 30
"""For what takes a second at most; other tests may have the processors."""
TOKEN = "a-token-of-the-tests-0123456789"
EVENTS = {"Accept": "text/event-stream"}
PLUGIN = {
    "name": "notes",
    "version": "1.0.0",
    "tools": [
        {
            "name": "say",
            "description": "Say a word.",
            "inputSchema": {
                "type": "object",
                "properties": {"word": {"type": "string"}},
                "required": ["word"],
            },
            "handler": {"type": "shell", "command": "echo {{word}}"},
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway."""

    process: subprocess.Popen[bytes]
    url: str
    daemon: RunningDaemon
    socket: str | None = None


@contextmanager
def serving(daemon: RunningDaemon, address: str = "0") -> Generator[Gateway]:
    """The command, until the end of the block."""
    token = daemon.directory / "http.token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "toolcell.cli", "http", address, "--json"),
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
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            where = json.loads(line)
            assert where["directory"] == str(daemon.project)
            assert TOKEN not in line.decode()
            yield Gateway(process, where["url"].removesuffix("/api/"), daemon, where.get("socket"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
            assert "toolcell" not in said, said  # no message and no traceback of ours
        finally:
            process.kill()


@pytest.fixture(scope="module")
def gateway(kit: RunningDaemon) -> Iterator[Gateway]:
    """One gateway for all tests that leave it as it is."""
    with serving(kit) as gateway:
        yield gateway


@asynccontextmanager
async def client(gateway: Gateway, token: str = TOKEN) -> AsyncGenerator[httpx2.AsyncClient]:
    transport = httpx2.AsyncHTTPTransport(uds=gateway.socket)
    async with (
        asyncio.timeout(SECONDS_MAX),
        httpx2.AsyncClient(
            base_url=gateway.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=SECONDS_MAX,
            transport=transport,
        ) as http,
    ):
        yield http


async def call(
    http: httpx2.AsyncClient, tool: str, *, session: str | None = None, **arguments: Any
) -> dict[str, Any]:
    """The outcome of a call."""
    where = {"session": session} if session else {}
    response = await http.post("/api/calls", json={"tool": tool, "arguments": arguments}, params=where)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def events_of(response: httpx2.Response) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """The events of a response, by name."""
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def until_there(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.01)


# The routes of the document


async def test_the_tools_are_listed_with_counts_as_documented(gateway: Gateway) -> None:
    async with client(gateway) as http:
        response = await http.get("/api/tools")
    assert response.status_code == 200
    body = response.json()
    assert body.keys() == {"tools", "counts"}
    assert body["counts"] == {"total": len(body["tools"]), "builtin": 0, "plugin": len(body["tools"])}
    echo = next(tool for tool in body["tools"] if tool["name"] == "kit_echo")
    assert echo["description"] == "Say it again."
    assert echo["source"] == "plugin"
    assert echo["inputSchema"]["required"] == ["text"]
    assert "pluginName" not in echo  # only a tool of a plugin file has one


async def test_built_in_tools_and_plugins_say_their_source(daemon: RunningDaemon) -> None:
    (daemon.project / ".toolcell" / "plugins").mkdir()
    (daemon.project / ".toolcell" / "plugins" / "notes.json").write_text(json.dumps(PLUGIN))
    daemon.configure('[daemon]\npacks = ["builtin"]\n')
    with serving(daemon) as gateway:
        async with client(gateway) as http:
            body = (await http.get("/api/tools")).json()
            status = await call(http, "git-status")
            said = await call(http, "say", word="; echo no")
    tools = {tool["name"]: tool for tool in body["tools"]}
    assert body["counts"] == {"total": 5, "builtin": 4, "plugin": 1}
    assert {name for name, tool in tools.items() if tool["source"] == "builtin"} == {
        "git-status",
        "git-diff-summary",
        "workspace-info",
        "file-reader",
    }
    assert tools["say"]["pluginName"] == "notes"
    assert status["kind"] in ("ok", "tool_error")  # the project of the test is no repository
    assert said["content"][0]["text"].strip() == "; echo no"


async def test_one_tool_is_shown_and_another_is_not_found(gateway: Gateway) -> None:
    async with client(gateway) as http:
        found = await http.get("/api/tools/kit_echo")
        missing = await http.get("/api/tools/nothing")
    assert found.json()["name"] == "kit_echo"
    assert found.json()["inputSchema"]["properties"].keys() == {"text", "style"}
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "Tool not found: nothing"


async def test_a_reload_finds_new_tools_and_tells_of_bad_files(daemon: RunningDaemon) -> None:
    daemon.tool("good", "from toolcell import tool\n\n@tool\ndef good() -> str:\n    return 'good'\n")
    with serving(daemon) as gateway:
        async with client(gateway) as http:
            assert (await http.get("/api/tools")).json()["counts"]["total"] == 1
            daemon.tool("more", "from toolcell import tool\n\n@tool\ndef more() -> str:\n    return 'more'\n")
            daemon.tool("bad", "import nothing_of_the_kind\n")
            response = await http.post("/api/tools/reload")
            body = response.json()
            assert response.status_code == 200
            assert (body["success"], body["toolCount"]) == (True, 2)
            (error,) = body["errors"]
            assert error["source"].endswith("bad.py")
            assert "nothing_of_the_kind" in error["message"]
            assert (await call(http, "more"))["content"] == [{"type": "text", "text": "more"}]


async def test_a_call_runs_what_was_saved_before_it_and_says_that_an_edit_broke_it(
    daemon: RunningDaemon,
) -> None:
    text = "from toolcell import tool\n\n@tool\ndef good() -> str:\n    return 'number'\n"
    daemon.tool("good", text)
    with serving(daemon) as gateway:
        async with client(gateway) as http:
            for number in ("one", "two", "three"):
                daemon.tool("good", text.replace("number", number))
                outcome = await call(http, "good")
                assert (outcome["content"][0]["text"], outcome["notes"]) == (number, [])
            daemon.tool("good", "def good(:\n")
            outcome = await call(http, "good")
            assert outcome["content"][0]["text"] == "three"
            (note,) = outcome["notes"]
            assert note.endswith("cannot be loaded: line 1: invalid syntax.")


# Calls


async def test_a_call_is_answered_with_its_outcome(gateway: Gateway) -> None:
    async with client(gateway) as http:
        done = await call(http, "kit_echo", text="hello", style="loud")
        failed = await call(http, "kit_fails", why="no")
        wrong = await call(http, "kit_echo", text=1)
        crashed = await call(http, "kit_crash")
    assert (done["kind"], done["content"]) == ("ok", [{"type": "text", "text": "HELLO"}])
    assert done["facts"]["run_seconds"] >= 0
    assert failed["kind"] == "tool_error"
    assert "It did not work: no" in failed["content"][0]["text"] + failed["message"]
    assert (wrong["kind"], crashed["kind"]) == ("invalid_arguments", "crashed")


async def test_the_tool_knows_who_calls(gateway: Gateway) -> None:
    async with client(gateway) as http:
        said = json.loads((await call(http, "kit_whoami"))["content"][0]["text"])
    assert said["agent"] == "http"
    assert said["directory"] == str(gateway.daemon.project)


async def test_a_tool_that_is_not_there_is_not_found(gateway: Gateway) -> None:
    async with client(gateway) as http:
        response = await http.post("/api/calls", json={"tool": "nothing"})
    assert response.status_code == 404
    assert response.json()["error"]["reason"] == "unknown_tool"


async def test_a_timeout_is_an_outcome(gateway: Gateway) -> None:
    async with client(gateway) as http:
        response = await http.post(
            "/api/calls", json={"tool": "kit_waits", "arguments": {"name": "late"}, "timeout": 1.0}
        )
    assert response.json()["kind"] == "timed_out"


async def test_a_call_tells_what_it_does_as_events(gateway: Gateway) -> None:
    async with (
        client(gateway) as http,
        http.stream(
            "POST", "/api/calls", json={"tool": "kit_steps", "arguments": {"count": 3}}, headers=EVENTS
        ) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        told = [event async for event in events_of(response)]
    names = [name for name, _ in told]
    assert names[0] == "tool_use"
    assert names[-2:] == ["tool_result", "completed"]
    assert set(names[1:-2]) == {"message"}
    assert told[0][1]["arguments"] == {"count": 3}
    assert [data["message"] for _, data in told if data.get("event") == "progress"][-1] == "step 3"
    assert told[-2][1]["content"] == [{"type": "text", "text": "3 steps"}]
    assert len({data["call_id"] for _, data in told}) == 1


async def test_a_failure_is_the_event_error_and_a_wrong_request_no_event(gateway: Gateway) -> None:
    async with client(gateway) as http:
        async with http.stream("POST", "/api/calls", json={"tool": "kit_crash"}, headers=EVENTS) as response:
            names = [name async for name, _ in events_of(response)]
        wrong = await http.post("/api/calls", json={"tool": ""}, headers=EVENTS)
    assert names[-2:] == ["error", "completed"]
    assert wrong.status_code == 422


@pytest.mark.parametrize(("name", "headers"), [("gone-json", {}), ("gone-events", EVENTS)])
async def test_a_client_that_goes_away_aborts_its_call(
    gateway: Gateway, name: str, headers: Mapping[str, str]
) -> None:
    async with client(gateway) as http:
        body = {"tool": "kit_waits", "arguments": {"name": name}}

        async def run() -> None:
            async with http.stream("POST", "/api/calls", json=body, headers=headers) as response:
                await response.aread()

        running = asyncio.create_task(run())
        await until_there(gateway.daemon.project / f"{name}.there")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until_there(gateway.daemon.project / f"{name}.stopped")
        while (await http.get("/api/calls")).json():
            await asyncio.sleep(0.01)


async def test_a_call_can_be_aborted_by_another_request(gateway: Gateway) -> None:
    async with client(gateway) as http:
        running = asyncio.create_task(call(http, "kit_waits", name="aborted"))
        await until_there(gateway.daemon.project / "aborted.there")
        (listed,) = (await http.get("/api/calls")).json()
        assert (listed["tool"], listed["session"]) == ("kit_waits", None)
        assert (await http.delete(f"/api/calls/{listed['call_id']}")).status_code == 202
        assert (await running)["kind"] == "aborted"
        again = await http.delete(f"/api/calls/{listed['call_id']}")
        assert (again.status_code, again.json()["error"]["reason"]) == (404, "unknown_call")


async def test_a_long_output_is_cut_and_read_on(gateway: Gateway) -> None:
    async with client(gateway) as http:
        outcome = await call(http, "kit_long", lines=9_000)
        output = outcome["output"]
        assert output["bytes"] > 800_000
        parts = [
            (
                await http.get(f"/api/outputs/{output['id']}", params={"start": start, "length": 500_000})
            ).content
            for start in range(0, output["bytes"], 500_000)
        ]
        missing = await http.get("/api/outputs/o-nothing")
        refused = await http.get(f"/api/outputs/{output['id']}", params={"start": -1})
    whole = b"".join(parts)
    assert len(whole) == output["bytes"]
    assert whole.startswith(b"00000000 xxx")
    assert b"00008999 " in whole
    assert missing.status_code == 404
    assert refused.status_code == 422


# Sessions and the events of all


COUNTING = """
from toolcell import tool

count = 0

@tool(isolation="session")
def counted() -> str:
    global count
    count += 1
    return str(count)
"""


async def test_a_session_keeps_state_and_sees_the_tools_it_allows(daemon: RunningDaemon) -> None:
    daemon.tool("counting", COUNTING)
    daemon.tool("other", "from toolcell import tool\n\n@tool\ndef other() -> str:\n    return 'other'\n")
    with serving(daemon) as gateway:
        async with client(gateway) as http:
            opened = await http.post("/api/sessions", json={"deny": ["other"]})
            assert opened.status_code == 201
            one = opened.json()["session"]
            two = (await http.post("/api/sessions")).json()["session"]
            counts = [
                (await call(http, "counting_counted", session=session))["content"][0]["text"]
                for session in (one, one, two, one)
            ]
            assert counts == ["1", "2", "1", "3"]
            tools = (await http.get("/api/tools", params={"session": one})).json()["tools"]
            assert [tool["name"] for tool in tools] == ["counting_counted"]
            denied = await http.post("/api/calls", json={"tool": "other"}, params={"session": one})
            assert (denied.status_code, denied.json()["error"]["reason"]) == (403, "not_allowed")
            assert [held["session"] for held in (await http.get("/api/sessions")).json()] == [one, two]
            assert (await http.delete(f"/api/sessions/{one}")).status_code == 204
            gone = await http.post("/api/calls", json={"tool": "counting_counted"}, params={"session": one})
            assert (gone.status_code, gone.json()["error"]["reason"]) == (404, "unknown_session")


async def test_closing_a_session_aborts_its_calls(gateway: Gateway) -> None:
    async with client(gateway) as http:
        session = (await http.post("/api/sessions")).json()["session"]
        running = asyncio.create_task(call(http, "kit_waits", session=session, name="closed"))
        await until_there(gateway.daemon.project / "closed.there")
        assert (await http.delete(f"/api/sessions/{session}")).status_code == 204
        assert (await running)["kind"] == "aborted"


async def test_whoever_follows_hears_of_calls_and_of_changed_tools(daemon: RunningDaemon) -> None:
    daemon.tool("good", "from toolcell import tool\n\n@tool\ndef good() -> str:\n    return 'good'\n")
    with serving(daemon) as gateway:
        async with client(gateway) as http, http.stream("GET", "/api/events") as response:
            following = events_of(response)
            assert (await call(http, "good"))["kind"] == "ok"
            heard = [await anext(following) for _ in range(3)]
            names = [name for name, _ in heard if name != "message"]
            assert names[:2] == ["tool_use", "tool_result"]
            daemon.tool("more", "from toolcell import tool\n\n@tool\ndef more() -> str:\n    return 'more'\n")
            async for name, data in following:
                if name == "tools" and data["counts"]["total"] == 2:
                    break


async def test_there_are_only_so_many_sessions(gateway: Gateway) -> None:
    opened: list[str] = []
    async with client(gateway) as http:
        while (response := await http.post("/api/sessions")).status_code == 201:
            opened.append(response.json()["session"])
        assert response.status_code == 429
        assert len(opened) >= sessions.SESSIONS_MAX - 1  # one may be that of all
        for session in opened:
            await http.delete(f"/api/sessions/{session}")
        while (await http.get("/api/sessions")).json():
            await asyncio.sleep(0.01)


async def test_a_session_that_nobody_uses_is_left(
    kit: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.2)
    async with (
        asyncio.timeout(SECONDS_MAX),
        sessions.GatewaySessions(str(kit.project), socket=kit.socket, daemon="running") as held,
    ):
        opened = await held.open(allow=["*"], deny=[])
        async with held.use(opened.id):
            await asyncio.sleep(0.5)
            assert held.opened == [opened]  # in use
        while held.opened:
            await asyncio.sleep(0.01)
        with pytest.raises(sessions.NoSession):
            async with held.use(opened.id):
                pass


async def test_the_end_of_the_gateway_aborts_what_runs(daemon: RunningDaemon) -> None:
    daemon.tool("kit", KIT.read_text())
    with serving(daemon) as gateway:
        async with client(gateway) as http:
            running = asyncio.create_task(call(http, "kit_waits", name="ended"))
            await until_there(daemon.project / "ended.there")
            gateway.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(gateway.process.wait, SECONDS_MAX) == 0
            await until_there(daemon.project / "ended.stopped")
            with suppress(httpx2.HTTPError):  # answered, or cut off
                assert (await running)["kind"] == "aborted"


async def test_without_a_daemon_the_answer_says_so(daemon: RunningDaemon) -> None:
    with serving(daemon) as gateway:
        daemon.stop()
        async with client(gateway) as http:
            response = await http.get("/api/tools")
            assert response.status_code == 503
            assert "toolcell serve" in response.json()["error"]["remedy"]
            await asyncio.to_thread(daemon.start)
            assert (await http.get("/api/tools")).status_code == 200


# Who comes in


@pytest.mark.parametrize("path", ["/api/tools", "/api/calls", "/api/openapi.json", "/api/events"])
async def test_without_the_token_there_is_nothing(gateway: Gateway, path: str) -> None:
    async with client(gateway, token="another-token-0123456789") as http:
        refused = await http.get(path)
        assert (refused.status_code, refused.json()["error"]["reason"]) == (401, "wrong_token")
        assert (await http.get(path, headers={"Authorization": ""})).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_pages_of_others_do_not_come_in(gateway: Gateway, headers: dict[str, str], status: int) -> None:
    async with client(gateway) as http:
        refused = await http.get("/api/tools", headers=headers)
    assert refused.status_code == status
    assert set(refused.json()["error"]) == {"reason", "message", "remedy"}


async def test_a_body_that_is_no_json_is_named_with_its_place(gateway: Gateway) -> None:
    async with client(gateway) as http:
        response = await http.post(
            "/api/calls", content=b'{"tool": ', headers={"Content-Type": "application/json"}
        )
    assert response.status_code == 422
    assert response.json()["error"]["message"] == "The body is no JSON, at its character 9: Expecting value."


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/tools", "GET"),
        ("POST", "/api/tools/add", "GET"),
        ("DELETE", "/api/tools/reload", "GET, POST"),
        ("HEAD", "/api/sessions", "GET, POST"),
        ("GET", "/api/sessions/s", "DELETE"),
        ("PATCH", "/api/nothing", "GET, POST, DELETE"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(
    gateway: Gateway, method: str, path: str, allowed: str
) -> None:
    async with client(gateway) as http:
        answer = await http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path", ["/", "/apiary", "/api", "/API/tools", "/docs", "/openapi.json", "/api/../etc", "//api/tools"]
)
async def test_there_is_nothing_but_the_api(gateway: Gateway, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
    host = gateway.url.removeprefix("http://")
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    assert status == b"404"


HOSTILE_BODIES: Mapping[str, bytes] = {
    "no JSON": b"{",
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "deep": b'{"tool": "kit_echo", "arguments": ' + b"[" * 100_000,
    "deep and whole": b'{"tool":"kit_echo","arguments":{"text":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    "NaN": b'{"tool": "kit_echo", "arguments": {"text": NaN}}',
    "another key": b'{"tool": "kit_echo", "directory": "/"}',
    "a number as the tool": b'{"tool": 1}',
    "a long tool": b'{"tool": "' + b"x" * 100_000 + b'"}',
    "half a character in the tool": b'{"tool": "\\ud800"}',
    "half a character in a key": b'{"tool": "kit_echo", "\\ud800": 1}',
    "arguments as a list": b'{"tool": "kit_echo", "arguments": []}',
    "a negative timeout": b'{"tool": "kit_echo", "timeout": -1}',
    "an endless timeout": b'{"tool": "kit_echo", "timeout": 1e999}',
    "bytes that are no text": b'{"tool": "\xff"}',
    "a null byte": b'{"tool": "ec\\u0000ho"}',
}


@pytest.mark.sampled("headers")
@pytest.mark.parametrize("body", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])
async def test_a_hostile_request_is_refused_with_a_reason(
    gateway: Gateway, body: bytes, headers: Mapping[str, str]
) -> None:
    async with client(gateway) as http:
        response = await http.post(
            "/api/calls", content=body, headers={"Content-Type": "application/json", **headers}
        )
        if response.status_code == 200:  # then the daemon refused the arguments or the tool
            assert '"invalid_arguments"' in response.text or '"refused"' in response.text, response.text[:500]
        else:
            assert response.status_code in (400, 404, 422), response.text[:500]
            assert response.json()["error"]["message"]
        assert (await call(http, "kit_echo", text="still there"))["kind"] == "ok"


EARLY = {
    "no token": (b"POST /api/calls HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n", b"401"),
    "no method": (b"TRACE /api/calls HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n", b"405"),
    "no request": (b"POST /api/calls HTTP/9\r\n\r\n", b"400"),
    "too large": (
        b"POST /api/calls HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: 99999999\r\n\r\n",
        b"413",
    ),
}


@pytest.mark.parametrize(("head", "status"), EARLY.values(), ids=EARLY.keys())
def test_who_still_sends_when_it_is_answered_reads_the_answer(
    gateway: Gateway, head: bytes, status: bytes
) -> None:
    """A socket that is closed before it was read is reset, and the peer loses what was written to it."""
    host = gateway.url.removeprefix("http://")
    head = head.replace(b"{host}", host.encode()).replace(b"{token}", TOKEN.encode())
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=60) as peer:
        peer.sendall(head)
        assert select.select([peer], [], [], 60)[0], "it has answered"
        for _ in range(100):
            peer.sendall(b"x" * 1000)
        peer.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(partial(peer.recv, 65536), b""))
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:100]
    assert answer.endswith(b"}") or status == b"400"


def test_who_sends_for_ever_after_its_answer_is_not_read_for_ever(gateway: Gateway) -> None:
    host = gateway.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=60) as peer:
        peer.sendall(EARLY["no token"][0].replace(b"{host}", host.encode()))
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            peer.sendall(b"x" * 1_000_000_000)


async def test_half_a_character_in_an_argument_comes_back_as_json(gateway: Gateway) -> None:
    async with client(gateway) as http:
        response = await http.post("/api/calls", content=b'{"tool":"kit_echo","arguments":{"text":"\\ud800"}}',
            headers={"Content-Type": "application/json"})  # fmt: skip
    assert response.status_code in (200, 422)
    response.json()


@pytest.mark.parametrize(
    "path",
    [
        "/api/tools/..%2f..%2fetc%2fpasswd",
        "/api/tools/%00",
        "/api/tools/%ff",
        "/api/outputs/..%2f..%2fetc%2fpasswd",
        "/api/outputs/%00",
        f"/api/outputs/{'x' * 4000}",
        "/api/tools?session=%00",
        "/api/tools?session=s-0",
        f"/api/tools?session={'x' * 4000}",
    ],
)
async def test_a_hostile_path_finds_nothing(gateway: Gateway, path: str) -> None:
    async with client(gateway) as http:
        response = await http.get(path)
    assert response.status_code in (404, 422), response.text[:300]
    assert response.json()["error"]["message"]


# Where it listens


async def test_a_socket_is_this_users_alone_and_goes_with_the_gateway(daemon: RunningDaemon) -> None:
    path = daemon.directory / "http.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # left behind by a gateway that was killed
    daemon.tool("kit", KIT.read_text())
    with serving(daemon, str(path)) as gateway:
        assert gateway.socket == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with client(gateway) as http:
            assert (await call(http, "kit_echo", text="hello"))["kind"] == "ok"
            assert (await http.get("/api/tools", headers={"Authorization": ""})).status_code == 401
        second = command(daemon, str(path))
        assert second.returncode == 2
        assert "Take another path" in second.stderr
    assert not path.exists()


async def test_a_file_is_not_replaced_by_a_socket(daemon: RunningDaemon) -> None:
    path = daemon.directory / "file"
    path.write_text("mine")
    done = command(daemon, str(path))
    assert (done.returncode, path.read_text()) == (2, "mine")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0.0.0.0:0"], "is every address"),
        (["192.0.2.1:0"], "no token is set"),
        (["x"], "is no port"),
        (["0", "--token-env", "NOT_THERE"], "no environment variable NOT_THERE"),
    ],
)
def test_where_it_cannot_listen(daemon: RunningDaemon, words: list[str], message: str) -> None:
    done = command(daemon, *words)
    assert done.returncode == 2
    assert message in done.stderr


def command(daemon: RunningDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "http", *words, "--socket", daemon.socket],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory)},
        check=False,
    )


# The feed


async def test_a_slow_reader_loses_the_oldest_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "UNREAD_MAX", 4)
    sent = Feed()
    with sent.reader() as reader:
        sent.put(FeedEvent("tool_use", {}, "c"))
        for number in range(10):
            sent.put(FeedEvent("message", {"number": number}, "c"))
        sent.put(FeedEvent("completed", {}, "c"))
        taken = [await reader.take() for _ in range(5)]
    assert [event.name for event in taken] == ["gap", "tool_use", "message", "message", "completed"]
    assert taken[0].data == {"count": 8}
    assert taken[3].data == {"number": 9}


async def test_a_slow_reader_keeps_no_more_bytes_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "UNREAD_BYTES_MAX", 1000)
    sent = Feed()
    with sent.reader() as reader:
        for number in range(10):
            sent.put(FeedEvent("tool_use", {"number": number, "text": "x" * 300}, "c"))
        sent.put(FeedEvent("completed", {"text": "x" * 2000}, "c"))
        taken = [await reader.take() for _ in range(2)]
        for number in range(2):  # what was taken does not count any more
            sent.put(FeedEvent("tool_use", {"number": number, "text": "x" * 300}, "c"))
        taken += [await reader.take() for _ in range(2)]
    assert [event.name for event in taken] == ["gap", "completed", "tool_use", "tool_use"]
    assert taken[0].data == {"count": 10}


# Its description


async def test_the_description_is_openapi_and_says_what_is_answered(gateway: Gateway) -> None:
    async with client(gateway) as http:
        described = (await http.get("/api/openapi.json")).json()
        listed = (await http.get("/api/tools")).json()
        outcome = await call(http, "kit_echo", text="x")
    assert re.fullmatch(r"3\.1\.\d+", described["openapi"])
    assert described["paths"].keys() == {
        "/api/tools",
        "/api/tools/{name}",
        "/api/tools/reload",
        "/api/sessions",
        "/api/sessions/{session_id}",
        "/api/calls",
        "/api/calls/{call_id}",
        "/api/events",
        "/api/outputs/{output_id}",
    }
    assert listed.keys() == described["components"]["schemas"]["Tools"]["properties"].keys()
    assert outcome.keys() >= described["components"]["schemas"]["OutcomeBody"]["properties"].keys()
    for name, answers in (("Tool", listed["tools"]), ("Tools", [listed]), ("OutcomeBody", [outcome])):
        for answer in answers:
            assert answer.keys() >= {*described["components"]["schemas"][name].get("required", ())}, name


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="`make test-agents` installs schemathesis")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("examples", [8, pytest.param(50, marks=pytest.mark.nightly)])
def test_no_generated_request_finds_a_server_error(gateway: Gateway, examples: int) -> None:
    """schemathesis makes requests of the description, valid and invalid, and compares the answers with it."""
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{gateway.url}/api/openapi.json"),
            *("--header", f"Authorization: Bearer {TOKEN}", "--exclude-path", "/api/events", "--no-color"),
            *("--max-examples", str(examples), "--request-timeout", "10", "--generation-deterministic"),
            *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=gateway.daemon.directory,
        env={"PATH": os.environ["PATH"], "HOME": str(gateway.daemon.directory), "LC_ALL": "C.UTF-8"},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "10 / 10" in done.stdout or "Tested: 10" in done.stdout, done.stdout[-2000:]
