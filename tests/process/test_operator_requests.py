"""What operators may ask for of logs and calls, with values that our own command would not send."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.daemons import RunningDaemon

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
