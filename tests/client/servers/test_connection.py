"""The client of an MCP server, against servers of a few lines: what they may do, and what they get for the rest."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolcell._servers import connection, listing
from toolcell._servers.connection import RpcError, ServerBroken, ServerConnection, ServerExited
from toolcell._servers.listing import lists_of

HEAD = """
import json, os, signal, sys, time
signal.alarm(30)
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
def hear():
    return json.loads(sys.stdin.readline())
say(id=hear()["id"], result={})
hear()
"""


class Recorder:
    """A host that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.number: object = None  # of a request that is answered later

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append((method, dict(params)))

    def on_request(self, number: object, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.told.append((method, dict(params)))
        if method == "roots/list":
            return {"roots": []}
        if method == "later":
            self.number = number
            return None
        raise RpcError(0, "not offered")


@contextmanager
def served(script: str, host: Recorder | None = None) -> Generator[ServerConnection]:
    """A server that has been greeted and runs these lines; it is reaped at the end."""
    one = ServerConnection([sys.executable, "-I", "-c", HEAD + script], "/", host or Recorder())
    try:
        one.start()
        yield one
    finally:
        one.kill()


def test_a_response_counts_once_and_only_for_an_open_request() -> None:
    lines = """
number = hear()["id"]
for other in (number + 1, number - 1, True, None, str(number), [number], 2**70):
    say(id=other, result={"whose": "another's"})
say(id=number, result={"whose": "mine"})
say(id=number, result={"whose": "mine again"})
say(id=hear()["id"], result={"whose": "the next"})
hear()
"""
    with served(lines) as one:
        assert one.request("a", {}) == {"whose": "mine"}
        assert one.request("b", {}) == {"whose": "the next"}


@pytest.mark.parametrize(
    "line",
    [
        b"a banner",
        b"\xff\xfe",
        b"[1, 2]",
        b"3",
        b"{" * 100_000,
        b'{"id": ',
        b"",
        b"null",
        b'{"jsonrpc": "2.0"}',
    ],
)
def test_a_line_that_is_no_message_is_output(line: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    lines = f"number = hear()['id']\nos.write(1, {line!r} + b'\\n')\nsay(id=number, result={{}})\nhear()"
    with served(lines) as one:
        assert one.request("a", {}) == {}
    printed = capfd.readouterr().err
    assert len(printed) <= connection.NOISE_BYTES_MAX + 1
    if line == b"a banner":
        assert printed == "a banner\n"


def test_requests_and_notifications_of_the_server_are_answered_and_told() -> None:
    host = Recorder()
    lines = """
number = hear()["id"]
say(method="notifications/message", params={"data": 1})
say(method="notifications/odd", params=[1])
answers = []
for name in ("ping", "roots/list", "else"):
    say(id=name, method=name)
    answers.append(hear())
say(id=number, result={"answers": answers})
hear()
"""
    with served(lines, host) as one:
        pong, roots, other = one.request("a", {})["answers"]
    assert (pong["id"], pong["result"]) == ("ping", {})
    assert roots["result"] == {"roots": []}
    assert other["error"] == {"code": -32601, "message": "not offered"}
    assert host.told == [
        ("notifications/message", {"data": 1}), ("notifications/odd", {}), ("roots/list", {}), ("else", {}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"code": 5, "message": "no"}, "no"),
        ("odd", "it failed without a reason"),
        ({"message": None}, "it failed without a reason"),
    ],
)
def test_an_error_is_raised_with_its_message(error: object, message: str) -> None:
    with served(f"say(id=hear()['id'], error={error!r})\nhear()") as one, pytest.raises(RpcError) as raised:
        one.request("a", {})
    assert str(raised.value) == message


def test_the_end_of_a_server_is_told_as_it_was() -> None:
    with served("hear(); sys.exit(3)") as one, pytest.raises(ServerExited) as exited:
        one.request("a", {})
    assert exited.value.status == 3
    with served("hear(); os.kill(os.getpid(), 9)") as one, pytest.raises(ServerExited) as killed:
        one.request("a", {})
    assert killed.value.status == -signal.SIGKILL


@pytest.mark.parametrize("answered", [False, True])
def test_the_end_of_a_server_is_told_while_what_it_started_has_its_output(answered: bool) -> None:
    lines = f"""
import subprocess
child = subprocess.Popen(["sleep", "60"])
say(id=hear()["id"], result={{"child": child.pid}})
number = hear()["id"]
if {answered}:
    say(id=number, result={{"last": True}})
os._exit(3)
"""
    with served(lines) as one:
        child = one.request("a", {})["child"]
        if answered:
            assert one.request("b", {}) == {"last": True}
        with pytest.raises(ServerExited) as exited:
            one.request("c", {})
        assert exited.value.status == 3
        assert Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        os.kill(child, signal.SIGKILL)


def test_a_server_that_closes_its_output_and_goes_on_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "EXIT_SECONDS", 0.1)
    with (
        served("hear(); os.close(1); time.sleep(60)") as one,
        pytest.raises(ServerBroken, match="closed its output"),
    ):
        one.request("a", {})


@pytest.mark.parametrize("end", ["", "\\n"])
def test_a_message_that_is_too_long_is_refused_before_it_is_whole(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MESSAGE_BYTES_MAX", 2**20)
    lines = f"hear(); os.write(1, b'x' * 2**21 + b'{end}'); time.sleep(60)"
    with served(lines) as one, pytest.raises(ServerBroken, match="a message of more than 1 MiB"):
        one.request("a", {})


def test_a_server_that_reads_nothing_does_not_block_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes requests without end, and what would be answered to them is bounded."""
    monkeypatch.setattr(connection, "WAITING_BYTES_MAX", 2**20)
    lines = "hear()\nwhile True: say(id='x' * 10_000, method='ping')"
    with served(lines) as one, pytest.raises(ServerBroken, match="does not read what it is sent"):
        one.request("a", {})


def test_long_arguments_reach_a_server_that_writes_before_it_reads() -> None:
    lines = "os.write(1, b'x' * 2**20 + b'\\n')\nsay(id=(asked := hear())['id'], result={'size': len(asked['params']['text'])})\nhear()"
    with served(lines) as one:
        assert one.request("a", {"text": "y" * 2**22}) == {"size": 2**22}


def test_a_list_of_tools_without_an_end_has_one() -> None:
    lines = """
while True:
    number = hear()["id"]
    say(id=number, result={"tools": [{"name": f"t{number}"}, 5], "nextCursor": "more"})
"""
    with served(lines) as one:
        tools = lists_of(one)["tools"]
        assert isinstance(tools, list)
        assert len(tools) == listing.PAGES_MAX


def test_of_other_lists_those_are_asked_for_that_a_server_has() -> None:
    """Its tools are used where another list fails."""
    lines = """
for _ in range(4):
    asked = hear()
    if asked["method"].startswith("tools"):
        say(id=asked["id"], result={"tools": [{"name": "t"}]})
    elif asked["method"] == "resources/list":
        say(id=asked["id"], result={"resources": [{"uri": "a"}] * 1001, "nextCursor": "and so on"})
    else:
        say(id=asked["id"], error={"code": -32601, "message": asked["method"]})
"""
    with served(lines) as one:
        assert lists_of(one).keys() == {"tools"}
    with served(lines) as one:
        one.capabilities = {"resources": None, "prompts": {}}
        lists = lists_of(one)
        assert lists["resources"] == [{"uri": "a"}] * 1001, "more than are used are not asked for"
        assert str(lists["resourceTemplates"]) == "resources/templates/list"
        assert str(lists["prompts"]) == "prompts/list"


def until_taken(one: ServerConnection, number: int) -> Mapping[str, Any]:
    while (response := one.take(number)) is None:
        one.exchange(
            readable=bool(select.select(one.reading, [], [], 0.01)[0]), writable=bool(one.waiting_bytes)
        )
    return response


def test_a_request_is_cancelled_alone_and_followed_by_a_ping() -> None:
    lines = """
first, second, told, ping = hear(), hear(), hear(), hear()
say(id=ping["id"], result={})
say(id=second["id"], result={"first": first["id"], "told": told, "ping": ping["method"]})
say(id=first["id"], result={})
say(id=hear()["id"], result={})
hear()
"""
    with served(lines) as one:
        first, second = one.begin("a", {}), one.begin("b", {})
        ping = one.cancel(first, "enough")
        assert until_taken(one, ping)["result"] == {}
        said = until_taken(one, second)["result"]
        assert said["told"]["method"] == "notifications/cancelled"
        assert said["told"]["params"] == {"requestId": said["first"], "reason": "enough"}
        assert (said["first"], said["ping"]) == (first, "ping")
        one.forget(first)
        assert one.request("c", {}) == {}
        assert one.take(first) is None


def test_a_request_of_the_server_can_be_answered_later() -> None:
    lines = """
asked = hear()
say(id="mine", method="later")
said = [hear(), hear()]
say(id=asked["id"], result={"said": said})
hear()
"""
    host = Recorder()
    with served(lines, host) as one:
        first = one.begin("a", {})
        one.begin("b", {})
        while host.number is None:
            one.exchange(
                readable=bool(select.select(one.reading, [], [], 0.01)[0]), writable=bool(one.waiting_bytes)
            )
        one.answer(host.number, {"it": 5})
        _, answered = until_taken(one, first)["result"]["said"]
    assert (answered["id"], answered["result"]) == ("mine", {"it": 5})


def test_a_program_that_is_not_there_says_so() -> None:
    with pytest.raises(
        ServerBroken, match=r"^/no/such/program cannot be started: No such file or directory$"
    ):
        ServerConnection(["/no/such/program"], "/", Recorder()).start()


@pytest.mark.parametrize(
    "lines", ["sys.stdin.read()", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"]
)
def test_the_end_leaves_no_process(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSE_SECONDS", 0.2)
    with served(lines) as one:
        process = one._process  # pyright: ignore[reportPrivateUsage]  to see that it is reaped
        assert process is not None
        one.close()
        assert process.returncode is not None
        assert not os.path.exists(f"/proc/{process.pid}")


def test_a_server_that_has_closed_its_input_is_sent_nothing_more() -> None:
    """What would wait for it for ever would have its client try to write for ever."""
    host = Recorder()
    with served("os.close(0)\nsay(method='closed')\ntime.sleep(30)\n", host) as one:
        while one.refresh() and not host.told:
            select.select([one.reading[0]], [], [], 20)
        one.begin("a", {})
        assert select.select([], [one.writing], [], 20)[1]
        one.exchange(readable=False, writable=True)
        assert one.waiting_bytes == 0


STATELESS = """
import json, os, signal, sys
signal.alarm(30)
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
def hear():
    return json.loads(sys.stdin.readline())
say(id=hear()["id"], error={"code": -32022, "message": "another version", "data": {"supported": ["2026-07-28"]}})
"""


@contextmanager
def stateless(script: str) -> Generator[ServerConnection]:
    """A server that refuses a greeting and goes on with these lines, started; it is reaped at the end."""
    one = ServerConnection([sys.executable, "-I", "-c", STATELESS + script], "/", Recorder())
    try:
        one.start()
        yield one
    finally:
        one.kill()


def test_a_server_that_refuses_a_greeting_is_asked_without_one() -> None:
    lines = """
asked = [hear()]
say(id=asked[0]["id"], result={"supportedVersions": ["2026-07-28"], "capabilities": {"prompts": {}}})
asked += [hear(), hear(), hear()]
say(id=asked[2]["id"], result={"asked": asked})
say(id=hear()["id"], result={})
hear()
"""
    with stateless(lines) as one:
        assert one.capabilities == {"prompts": {}}
        number = one.begin("a", {"b": 1}, with_progress=True)
        ping = one.cancel(number, "enough")
        asked = until_taken(one, number)["result"]["asked"]
        assert until_taken(one, ping)["result"] == {}
    assert [each["method"] for each in asked] == [
        "server/discover", "subscriptions/listen", "a", "notifications/cancelled",
    ]  # fmt: skip
    assert asked[1]["params"]["notifications"] == {"promptsListChanged": True}
    assert asked[2]["params"]["b"] == 1
    meta = asked[2]["params"]["_meta"]
    assert meta["progressToken"] == asked[2]["id"]
    for each in asked[:3]:
        assert each["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == connection.STATELESS


def test_another_refusal_of_a_greeting_is_one() -> None:
    lines = "say(id=hear()['id'], result={})\nhear()\nhear()\n"
    one = ServerConnection(
        [sys.executable, "-I", "-c", STATELESS.replace("-32022", "5") + lines], "/", Recorder()
    )
    try:
        with pytest.raises(RpcError, match="another version"):
            one.start()
    finally:
        one.kill()


ASKED: tuple[tuple[Any, Any], ...] = (
    ({"resultType": "input_required", "inputRequests": {"a": 5}, "requestState": "s"}, ({"a": 5}, "s")),
    ({"resultType": "input_required", "inputRequests": {}}, ({}, None)),
    ({"resultType": "input_required", "inputRequests": [1]}, None),
    ({"resultType": "complete", "inputRequests": {}}, None),
    ("input_required", None),
    (None, None),
)


@pytest.mark.parametrize(("result", "expected"), ASKED)
def test_what_a_server_asks_for_before_it_answers(result: object, expected: object) -> None:
    assert connection.asked_for({"result": result}) == expected
    assert connection.asked_for({"error": result}) is None
