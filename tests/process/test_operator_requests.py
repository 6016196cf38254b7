"""What operators may ask for of logs and calls, with values that our own command would not send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.daemons import RunningDaemon

from toolcell.client import Kind, Refused, Started
from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

TOOLS = """
from toolcell import tool

@tool
def says(text: str) -> str:
    print(text)
    return text
"""

INT64_MAX = 2**63 - 1


async def texts(daemon: RunningDaemon, request: op.TailLogsRequest) -> list[str]:
    async with daemon.operate() as operator:
        parts = [part async for part in operator.watch(operator.operator.TailLogs, request)]
    return [line.text.strip() for part in parts for line in part.lines]


async def test_any_time_and_any_number_of_entries_is_served(daemon: RunningDaemon) -> None:
    daemon.tool("talk", TOOLS)
    async with daemon.connect() as session:
        for text in ("one", "two"):
            assert (await session.call("talk_says", {"text": text})).ok
    known = ["one", "two"]
    for request, expected in (
        (op.TailLogsRequest(), known),
        (op.TailLogsRequest(lines=0), []),
        (op.TailLogsRequest(lines=1), known[1:]),
        (op.TailLogsRequest(lines=2**32 - 1), known),
        (op.TailLogsRequest(since=Timestamp()), known),
        (op.TailLogsRequest(since=Timestamp(seconds=-INT64_MAX - 1, nanos=-(2**31))), known),
        (op.TailLogsRequest(since=Timestamp(seconds=INT64_MAX, nanos=2**31 - 1)), []),
        (op.TailLogsRequest(since=Timestamp(nanos=2**31 - 1)), known),
    ):
        request.tool_or_call = "talk_says"
        assert await texts(daemon, request) == expected, request


WAITS = """
import asyncio
from toolcell import tool

@tool
async def one() -> None:
    await asyncio.sleep(600)

@tool
async def two() -> None:
    await asyncio.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "ended"),
    [
        ({"tool": "waits_one"}, {"a1", "b1"}),
        ({"session_id": "b"}, {"b1", "b2"}),
        ({"tool": "waits_two", "session_id": "b"}, {"b2"}),
        ({"all": True}, {"a1", "a2", "b1", "b2"}),
        ({"tool": "unknown"}, set[str]()),
    ],
)
async def test_an_operator_aborts_the_calls_of_a_tool_or_a_session_or_all(
    daemon: RunningDaemon, chosen: dict[str, Any], ended: set[str]
) -> None:
    daemon.tool("waits", WAITS)
    async with daemon.connect() as a, daemon.connect() as b, daemon.operate() as operator:
        calls = {"a1": a.call("waits_one"), "a2": a.call("waits_two"), "b1": b.call("waits_one"), "b2": b.call("waits_two")}  # fmt: skip
        for call in calls.values():
            async for event in call:
                if isinstance(event, Started):
                    break
        if "session_id" in chosen:
            chosen = {**chosen, "session_id": b.id[:-1]}
        request = op.AbortCallsRequest(**chosen, reason="the site is down")
        answer = await operator.ask(operator.operator.AbortCalls, request)
        assert set(answer.call_ids) == {calls[name].id for name in ended}
        for name in ended:
            outcome = await calls[name]
            assert (outcome.kind, outcome.cause) == (Kind.aborted, "operator")
            assert "by an operator: the site is down" in outcome.message
        listed = await operator.ask(operator.operator.ListCalls, op.ListCallsRequest())
        running = {call.call_id for call in listed.calls if call.state == "running"}
        assert running == {calls[name].id for name in calls.keys() - ended}


async def test_calls_to_abort_are_chosen_in_one_way(daemon: RunningDaemon) -> None:
    async with daemon.connect() as first, daemon.connect(), daemon.operate() as operator:
        shared = first.id[:2]  # "s-", as of every session
        for request, code in (
            (op.AbortCallsRequest(), "bad_request"),
            (op.AbortCallsRequest(reason="why"), "bad_request"),
            (op.AbortCallsRequest(all=True, tool="t"), "bad_request"),
            (op.AbortCallsRequest(all=True, session_id=first.id), "bad_request"),
            (op.AbortCallsRequest(session_id="\0"), "unknown_session"),
            (op.AbortCallsRequest(session_id=shared), "unknown_session"),
            (op.AbortCallsRequest(session_id=first.id + "x"), "unknown_session"),
        ):
            with pytest.raises(Refused) as refused:
                await operator.ask(operator.operator.AbortCalls, request)
            assert refused.value.code == code


async def test_what_goes_on_is_asked_for_with_any_values(daemon: RunningDaemon) -> None:
    daemon.tool("talk", TOOLS)
    hostile = "[b]\x1b[31m\0\n\u202e%'\"" * 10
    async with daemon.connect() as session, daemon.operate() as operator:
        assert (await session.call("talk_says", {"text": "one"})).ok
        for name in ("", "calls", "workers", "sessions", "tools", "deaths"):
            for sort in (
                "",
                "age",
                "processor",
                "memory",
                "output",
                "calls",
                "failed",
                "time",
                "name",
                hostile,
            ):
                request = op.GetActivityRequest(list=name, sort=sort, limit=2**32 - 1)
                answer = await operator.ask(operator.operator.GetActivity, request)
                assert answer.status.pid == daemon.pid
                assert answer.host.memory_bytes > answer.host.memory_available_bytes > 0
            request = op.GetActivityRequest(list=name, filter=hostile)
            assert (await operator.ask(operator.operator.GetActivity, request)).found == 0
        shown = await operator.ask(
            operator.operator.GetActivity, op.GetActivityRequest(list="tools", filter="TALK_s")
        )
        assert [(row.tool, row.calls >= 1, row.last) for row in shown.tools] == [("talk_says", True, "ok")]
        for request in (
            op.GetActivityRequest(list="call"),
            op.GetActivityRequest(list=hostile * 100),
            op.GetActivityRequest(list="calls", filter="x" * 201),
        ):
            with pytest.raises(Refused) as refused:
                await operator.ask(operator.operator.GetActivity, request)
            assert refused.value.reason == "bad_request"


async def test_who_stops_waiting_for_a_look_leaves_it_to_the_others(daemon: RunningDaemon) -> None:
    daemon.tool("waits", WAITS)
    async with daemon.connect() as session, daemon.operate() as operator:
        call = session.call("waits_one")
        async for event in call:
            if isinstance(event, Started):
                break
        request = op.GetActivityRequest(list="calls")

        def ask() -> asyncio.Future[op.GetActivityResponse]:
            return asyncio.ensure_future(operator.ask(operator.operator.GetActivity, request))

        looks = [ask() for _ in range(100)]
        for look in looks[::2]:
            look.cancel()
        for answer in await asyncio.gather(*looks[1::2]):
            assert answer.found == 1
        await asyncio.gather(*looks, return_exceptions=True)
        while not (await ask()).calls[0].usage.memory_bytes:
            await asyncio.sleep(0.1)
        call.abort()
        assert (await call).cause == "client"
