"""What ended calls leave in the daemon's memory."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS = 200
PAYLOAD_BYTES = 1_000_000
GROWTH_BYTES_MAX = 20 * 2**20
"""A tenth of the arguments of all calls; what is kept of ended calls has bounds that are below it together."""

ECHO = """
    from toolcell import ToolResult, tool

    @tool
    def echo(text: str) -> ToolResult:
        return ToolResult("done", details=text)
"""


async def call(session: Session, times: int) -> None:
    text = "x" * PAYLOAD_BYTES
    for _ in range(times):
        outcome = await session.call("echo", {"text": text})
        assert outcome.details == text


@pytest.mark.slow
async def test_ended_calls_keep_neither_their_arguments_nor_their_results(daemon: RunningDaemon) -> None:
    daemon.tool("echo", ECHO)
    async with daemon.connect() as session:
        await call(session, 20)
        before = daemon.status().memory_bytes
        await call(session, CALLS)
        growth = daemon.status().memory_bytes - before
    assert growth < GROWTH_BYTES_MAX, f"{growth / 2**20:.0f} MiB more after {CALLS} calls"
