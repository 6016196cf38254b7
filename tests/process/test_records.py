"""What a daemon that was killed had accepted is in the records of the next one, once; and what operators are told of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Started
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.records.writer import BATCH_SECONDS

pytestmark = pytest.mark.anyio

TOOLS = """
import asyncio, os, signal
from toolcell import tool

@tool
def quick(n: int) -> int:
    return n

@tool
async def waits() -> None:
    await asyncio.sleep(600)

@tool
def dies() -> None:
    os.write(2, b"the last words")
    os.kill(os.getpid(), signal.SIGSEGV)
"""
BOUND = 10 * BATCH_SECONDS
"""On a busy machine; of what ended within it before the kill, only that it was accepted may be known."""
ROUNDS = [
    pytest.param(number, marks=pytest.mark.slow if number < 2 else pytest.mark.nightly)
    for number in range(100)
]


async def listed(daemon: RunningDaemon, **wanted: Any) -> list[Any]:
    async with daemon.operate() as operator:
        return [*(await operator.ask(operator.operator.ListCalls, op.ListCallsRequest(**wanted))).calls]


async def events(daemon: RunningDaemon, **wanted: Any) -> list[Any]:
    async with daemon.operate() as operator:
        return [*(await operator.ask(operator.operator.ListEvents, op.ListEventsRequest(**wanted))).events]


@pytest.mark.parametrize("number", ROUNDS)
async def test_what_a_killed_daemon_had_accepted_is_recorded_once_as_ended_or_as_lost(
    make_daemon: Callable[[], RunningDaemon], number: int
) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.launch()
    clock = asyncio.get_running_loop().time
    killed = 0.0
    ended: dict[str, float] = {}
    accepted: dict[str, float] = {}
    try:
        async with daemon.connect() as session:
            waiting = [session.call("t_waits") for _ in range(3)]
            for call in waiting:
                async for event in call:
                    if isinstance(event, Started):
                        accepted[call.id] = clock()
                        break

            async def load() -> None:
                while True:
                    call = session.call("t_quick", {"n": 1})
                    if not (await call).ok:
                        return
                    ended[call.id] = clock()

            loads = [asyncio.create_task(load()) for _ in range(4)]
            while not ended:
                await asyncio.sleep(0)
            until = clock() + BOUND + Random(number).random() / 2
            while clock() < until and not any(each.done() for each in loads):
                await asyncio.sleep(0)
            killed = clock()
            daemon.stop(signal.SIGKILL)
            for each in loads:
                each.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
    except Exception:  # noqa: BLE001  # of a session whose daemon is gone
        assert daemon.process is None
    daemon.launch()
    lost = {call.call_id: call for call in await listed(daemon, outcome="lost", limit=1000)}
    with contextlib.closing(sqlite3.connect(daemon.state / "records.sqlite")) as database:
        found = database.execute("SELECT call_id, outcome FROM calls").fetchall()
    assert set(Counter(call_id for call_id, _ in found).values()) == {1}
    outcomes = dict(found)
    assert accepted.keys() <= lost.keys()
    assert ended.keys() <= outcomes.keys(), (
        "a client has seen them end, so it was told that they were accepted"
    )
    assert all("was killed" in call.outcome.message for call in lost.values())
    for call_id, when in ended.items():
        if when < killed - BOUND:
            assert outcomes[call_id] == "ok"
        else:
            assert outcomes[call_id] in {"ok", "lost"}
    (event,) = await events(daemon, type="daemon.lost")
    assert str(len(lost)) in event.message


@pytest.mark.slow
async def test_calls_deaths_and_decisions_are_there_after_a_restart(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.launch()
    async with daemon.connect(agent="one") as session:
        calls = [session.call("t_quick", {"n": 1}), session.call("t_dies"), session.call("nothing")]
        for call in calls:
            with contextlib.suppress(Exception):
                await call
    async with daemon.operate() as operator:
        await operator.ask(operator.operator.Reload, op.ReloadRequest())
    daemon.stop()
    daemon.launch()
    found = await listed(daemon)
    assert {call.tool for call in found} == {"t_quick", "t_dies", "nothing"}
    for wanted, tools in (
        ({"failed": True}, {"t_dies", "nothing"}),
        ({"outcome": "SIGSEGV"}, {"t_dies"}),
        ({"outcome": "refused"}, {"nothing"}),
        ({"agent": "one", "tool": "t_quick"}, {"t_quick"}),
        ({"session_id": "s-other"}, set[str]()),
    ):
        assert {call.tool for call in await listed(daemon, **wanted)} == tools
    (quick,) = [call for call in found if call.tool == "t_quick"]
    assert quick.path.endswith("t.py")
    assert quick.digest
    async with daemon.operate() as operator:
        one = await operator.ask(operator.operator.GetCall, op.GetCallRequest(call_id=quick.call_id[:-1]))
        assert next(iter(one.story)).text == "accepted"
        assert (one.arguments, one.result) == ("", "")
    deaths = [event for event in await events(daemon, type="worker.dead") if event.details.get("cause")]
    assert [(each.details["cause"], each.details["stderr"]) for each in deaths] == [
        ("SIGSEGV", "the last words")
    ]
    assert [event.type for event in await events(daemon, type="decision.")] == ["decision.reload"]
    kinds = {event.type for event in await events(daemon)}
    assert {"daemon.started", "daemon.stopped", "session.opened", "session.closed"} <= kinds


@pytest.mark.slow
async def test_who_follows_gets_earlier_calls_and_then_each_that_ends(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.launch()
    async with daemon.connect() as session, daemon.operate() as operator, asyncio.timeout(60):
        first = session.call("t_quick", {"n": 1})
        await first
        request = op.FollowCallsRequest(filter=op.ListCallsRequest(tool="t_quick"))
        following = aiter(operator.watch(operator.operator.FollowCalls, request))
        assert (await anext(following)).call.call_id == first.id
        await session.call("t_dies")
        second = session.call("t_quick", {"n": 2})
        await second
        assert (await anext(following)).call.call_id == second.id


@pytest.mark.slow
async def test_a_command_that_follows_goes_on_with_the_next_daemon(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.launch()
    command = (sys.executable, "-m", "toolcell.cli", "events", "--follow", "--socket", daemon.socket)
    following = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert following.stdout is not None
    assert following.stderr is not None
    try:
        async with asyncio.timeout(90):
            while b"daemon.started" not in await following.stdout.readline():
                pass
            daemon.stop(signal.SIGKILL)
            assert b"waiting for the next one" in await following.stderr.readline()
            daemon.launch()
            told = b""
            while b"daemon.started" not in told:
                told += await following.stdout.readline()
    finally:
        following.terminate()
        await following.wait()
    assert b"daemon.lost: process" in told
