"""An MCP host calls tools of every kind, cancels them, and reads their outputs cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import types
from tests.adapters.kinds import CONTEXTS, CUT, KINDS, LINES, STEP, aborted, assert_told
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


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_an_mcp_server_tells_its_progress_and_asks_the_person_of_the_host(
    kinds: RunningDaemon, era: str
) -> None:
    asked: list[str] = []
    told: list[tuple[float, float | None, str | None]] = []

    async def person(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def step(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with host(kinds, era, seconds_max=100, elicitation_callback=person) as client:
        assert text(await client.call_tool("served_steps", progress_callback=step)) == "stepped"
        assert told == [(2, 3, STEP)]
        assert text(await client.call_tool("served_asks")) == "accept Ada"
        assert asked == ["served_asks: Who?"]
