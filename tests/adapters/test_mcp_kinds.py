"""An MCP host calls tools of every kind, cancels them, and reads their outputs cut."""

from __future__ import annotations

import asyncio

import pytest
from tests.adapters.kinds import CONTEXTS, CUT, KINDS, LINES, aborted, assert_told
from tests.adapters.test_mcp_bridge import host, text
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]


async def test_tools_of_every_kind_are_called_cut_and_aborted(kinds: RunningDaemon) -> None:
    async with host(kinds, "2026-07-28", seconds_max=100) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        assert {name for kind in KINDS for name in (kind.say, kind.lines, kind.wait)} <= offered
        for kind in KINDS:
            assert text(await client.call_tool(kind.say, {"text": f"ü {kind.name}"})) == f"ü {kind.name}"
            long = await client.call_tool(kind.lines, {"count": LINES})
            assert CUT in "".join(getattr(block, "text", "") for block in long.content), kind
            waiting: list[asyncio.Task[object]] = []

            async def begin(tool: str = kind.wait, waiting: list[asyncio.Task[object]] = waiting) -> None:
                waiting.append(asyncio.create_task(client.call_tool(tool)))

            async def cancel(waiting: list[asyncio.Task[object]] = waiting) -> None:
                waiting[0].cancel()

            await aborted(kinds, kind.wait, begin, cancel)


async def test_tools_in_typescript_are_told_the_same_of_their_call_as_those_in_python(
    kinds: RunningDaemon,
) -> None:
    async with host(kinds, "2026-07-28", seconds_max=100) as client:
        assert_told(kinds, [text(await client.call_tool(tool)) for tool in CONTEXTS], agent="main")
