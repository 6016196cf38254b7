"""A host that is broken, hostile, or gone: an error on the stream, and never a hang or a traceback."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.adapters.bridge.host import COMMAND, SECONDS_MAX, Host, bridge, environment
from tests.daemons import RunningDaemon

from toolcell.adapters.bridge.output import HostLines
from toolcell.adapters.bridge.server import SESSIONS_MAX
from toolcell.adapters.bridge.session import CALLS_MAX
from toolcell.adapters.pipes import LINE_BYTES_MAX, Pipes

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


async def until(true: Callable[[], bool]) -> None:
    """Wait for what another process does and sends no event about."""
    async with asyncio.timeout(SECONDS_MAX):
        while not true():
            await asyncio.sleep(0.02)


async def test_after_lines_that_are_no_messages_the_next_message_is_carried_out(host: Host) -> None:
    lines = [
        b"nonsense\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"type": "open"}\n',
        b"[" * 100_000 + b"\n",
        b"\0\n",
    ]
    for line in lines:
        host.write(line)
    host.write(b"  \n")  # is no line
    await host.error(len(lines))
    await host.opened()
    codes = [one["code"] for one in host.said if one["type"] == "error"]
    assert codes == [
        "not_json", "not_json", "invalid_message", "invalid_message", "invalid_message", "not_json", "not_json",
    ]  # fmt: skip


async def test_a_line_that_is_too_long_is_one_error_and_the_rest_of_it_is_skipped(host: Host) -> None:
    begin = b'{"type": "close", "session": "s", "x": "'
    host.write(begin + b"x" * (LINE_BYTES_MAX + 100_000) + b'"}\n')
    assert (await host.error())["code"] == "line_too_long"
    await host.opened()
    assert len([one for one in host.said if one["type"] == "error"]) == 1


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "call", "session": "x", "id": "1", "tool": "kit_who"}, "unknown_session"),
        ({"type": "open"}, "duplicate_session"),
        ({"type": "abort", "id": "9"}, "unknown_id"),
        ({"type": "answer", "id": "9", "ask": 1, "allowed": True}, "unknown_id"),
        ({"type": "answer", "id": "runs", "ask": 1, "allowed": True}, "unknown_ask"),
        ({"type": "reply", "id": "runs", "request": 1}, "unknown_ask"),
        ({"type": "call", "id": "runs", "tool": "kit_who"}, "duplicate_id"),
        ({"type": "call", "id": "9", "tool": "kit_who", "arguments": []}, "invalid_message"),
        ({"type": "tell", "reason": "start"}, "invalid_message"),
        ({"type": "tell", "reason": "switch", "data": {"x": "y" * 40_000}}, "invalid_message"),
    ],
)
async def test_what_does_not_fit_is_an_error_that_names_it(
    host: Host, message: dict[str, Any], code: str
) -> None:
    await host.opened()
    host.say("call", id="runs", tool="kit_waits", arguments={"name": "stopped"})
    await host.event("update")
    host.say(**{"kind": message.pop("type"), **message})
    error = await host.error()
    assert error["code"] == code
    assert (error["session"], error["id"]) == (message.get("session", "s"), message.get("id"))
    host.say("abort", id="runs")  # the call that ran is as it was
    assert (await host.ended("runs"))["outcome"]["kind"] == "aborted"


async def test_a_call_after_the_close_is_an_error(host: Host) -> None:
    await host.opened()
    host.say("close")
    host.say("call", id="1", tool="kit_who")
    assert (await host.error())["code"] == "closing"
    await host.hears(lambda one: one["type"] == "closed")
    host.say("call", id="2", tool="kit_who")
    assert (await host.error(2))["code"] == "unknown_session"


async def test_a_call_before_its_session_is_open_is_an_error(host: Host) -> None:
    host.say("open")
    host.say("call", id="1", tool="kit_who")
    assert (await host.error())["code"] == "not_open"


@pytest.mark.parametrize(
    "fields",
    [
        {"arguments": {"x": "\ud800"}},
        {"limits": {"output_bytes": "much"}},
        {"limits": {"processes": []}},
        {"limits": {"no": 1}},
        {"timeout": 0},
        {"arguments": {"x": 1}},
    ],
)
async def test_a_call_that_cannot_be_made_ends_as_invalid_arguments(
    host: Host, fields: dict[str, Any]
) -> None:
    await host.opened()
    assert (await host.call("kit_who", **fields))["outcome"]["kind"] == "invalid_arguments"


@pytest.mark.parametrize("limits", [{"no": 1}, {"processes": "x"}, {"output_bytes": "much"}])
async def test_a_session_whose_limits_are_wrong_is_not_opened(host: Host, limits: dict[str, Any]) -> None:
    host.say("open", limits=limits)
    error = await host.error()
    assert (error["code"], error["to"], error["session"]) == ("invalid_message", "open", "s")
    await host.opened()


async def test_a_tool_that_is_not_there_ends_the_call_as_refused(host: Host) -> None:
    await host.opened()
    ended = await host.call("nothing")
    assert (ended["outcome"]["kind"], ended["outcome"]["cause"]) == ("refused", "unknown_tool")


async def test_there_are_so_many_sessions_and_calls_and_no_more(host: Host) -> None:
    await host.opened(events=[])
    for number in range(CALLS_MAX + 1):
        host.say("call", id=str(number), tool="kit_waits", arguments={"name": "stopped"})
    error = await host.error()
    assert (error["code"], error["id"]) == ("busy", str(CALLS_MAX))
    host.say("close")
    await host.hears(lambda one: one["type"] == "closed")
    assert len([one for one in host.said if one["type"] == "ended"]) == CALLS_MAX
    for number in range(SESSIONS_MAX + 1):
        host.say("open", session=str(number))
    error = await host.hears(lambda one: one.get("code") == "busy" and one["to"] == "open")
    assert error["session"] == str(SESSIONS_MAX)


async def test_the_end_of_the_input_in_the_middle_of_a_message_ends_it(served: RunningDaemon) -> None:
    async with bridge(served) as host:
        await host.opened()
        host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
        await host.event("update")
        host.write(b'{"type": "abort", "session"')
        assert await host.leave() == 0
    assert (await host.error())["code"] == "not_json"
    assert (await host.ended("1"))["outcome"]["kind"] == "aborted"
    assert (served.project / "stopped").exists()


async def test_a_host_that_does_not_read_loses_events_and_no_ends(host: Host, served: RunningDaemon) -> None:
    await host.opened()
    host.pause()
    host.say("call", id="1", tool="kit_floods")
    await until(lambda: served.status().calls > 0)
    await until(lambda: not served.status().calls)
    host.resume()
    ended = await host.ended("1")
    assert ended["text"] == "y" * 40_000
    assert any(one.get("event") == "gap" for one in host.said)


def test_a_host_that_neither_reads_nor_listens_is_left_when_it_ends_its_input(
    served: RunningDaemon,
) -> None:
    with subprocess.Popen(
        COMMAND,
        cwd=served.project,
        env=environment(served),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b"x\n" * 50_000)
            process.stdin.close()
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_host_that_stops_reading_in_a_session_is_left_when_it_ends_its_input(served: RunningDaemon) -> None:
    """The session waits for room for an event, and the pipe is never read."""
    with subprocess.Popen(
        COMMAND,
        cwd=served.project,
        env=environment(served),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b'{"type": "open", "session": "s"}\n')
            process.stdin.flush()
            while b'"opened"' not in process.stdout.readline():
                pass
            process.stdin.write(b'{"type": "call", "session": "s", "id": "1", "tool": "kit_floods"}\n')
            process.stdin.flush()
            assert process.stdout.readline()  # it floods, and nothing more is read
            process.stdin.close()
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


async def test_a_message_waits_until_the_host_has_read_the_one_before() -> None:
    put: list[bytes] = []
    drained: asyncio.Queue[None] = asyncio.Queue()
    pipes = SimpleNamespace(put=put.append, drained=drained.get)
    output = HostLines(cast("Pipes", pipes))
    telling = [asyncio.ensure_future(output.tell({"n": number})) for number in range(3)]
    for number in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert put == [b'{"n":%d}\n' % each for each in range(number + 1)]
        drained.put_nowait(None)
        await telling[number]
    await asyncio.gather(*telling)


def test_a_host_that_closes_its_reading_end_ends_it(served: RunningDaemon) -> None:
    read, write = os.pipe()
    with subprocess.Popen(
        COMMAND,
        cwd=served.project,
        env=environment(served),
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            os.close(write)
            os.close(read)
            for _ in range(50):
                try:
                    process.stdin.write(b"x\n")
                    process.stdin.flush()
                except BrokenPipeError:
                    break
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_what_is_no_pipe_is_refused_with_what_to_do(served: RunningDaemon) -> None:
    done = subprocess.run(
        COMMAND,
        cwd=served.project,
        env=environment(served),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdin is no pipe: a host is expected at its other end." in done.stderr


async def test_the_calls_of_a_bridge_that_is_killed_are_aborted_by_the_daemon(served: RunningDaemon) -> None:
    async with bridge(served, killed=True) as host:
        await host.opened(linger=0.1)
        host.say("call", id="1", tool="kit_waits", arguments={"name": "stopped"})
        await host.event("update")
        host.process.kill()
        await host.wait()
    await until(lambda: (served.project / "stopped").exists() and not served.status().sessions)
