"""What a tool logs, as a host of `toolcell mcp` hears it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastmcp import Client as FastClient
from fastmcp.client.logging import LogMessage
from fastmcp.client.transports import StdioTransport
from mcp import types
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.adapters.test_mcp_bridge import SECONDS_MAX, command, environment, host, text
from tests.daemons import RunningDaemon

from toolcell.adapters.mcp.log_records import LEVELS, RECORDS_MAX, LogRecords
from toolcell.client import Log

TOOLS = '''
import logging, time
from pathlib import Path
from toolcell import ToolContext, tool

@tool
def logs(context: ToolContext) -> str:
    """Log at every level."""
    print("printed")
    context.log.debug("one %s", 1)
    context.log.info("two")
    logging.getLogger("library").warning("three")
    context.log.error("four \\x1b[2J \\N{RIGHT-TO-LEFT OVERRIDE}")
    context.log.critical("five")
    return "done"

@tool
def floods(context: ToolContext) -> str:
    """Log far more than anybody reads."""
    for number in range(20_000):
        context.log.info("line %d %s", number, "x" * 100)
    return "done"

@tool
async def pauses(context: ToolContext) -> str:
    """Log, ask, and log again."""
    context.log.info("before")
    await context.ask("Go on?")
    context.log.info("after")
    return "done"

@tool
def shows(context: ToolContext) -> str:
    """Show what it has."""
    context.progress(1, 3, "one")
    context.update("first\\nlast\\n")
    return "done"

@tool
def titles(context: ToolContext) -> str:
    """Set a title, and metadata when it was seen."""
    context.metadata("Half way", done=1)
    seen, deadline = Path(__file__).parent.parent.parent / "seen", time.monotonic() + 30
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    context.metadata(done=2, left={"a": [1]})
    return "done"
'''
SAID = [
    ("debug", "one 1"),
    ("info", "two"),
    ("warning", "three"),
    ("error", "four \x1b[2J \N{RIGHT-TO-LEFT OVERRIDE}"),
    ("error", "five"),  # Toolcell has four levels
]


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with tools that log."""
    daemon.tool("kit", TOOLS)
    return daemon


class Heard:
    """What a host has heard."""

    def __init__(self) -> None:
        self.records: list[types.LoggingMessageNotificationParams] = []
        self.news = asyncio.Event()

    async def __call__(self, params: types.LoggingMessageNotificationParams) -> None:
        self.records.append(params)
        self.news.set()

    @property
    def said(self) -> list[tuple[str, Any]]:
        return [(params.level, params.data) for params in self.records]


FIRST: tuple[tuple[types.LoggingLevel | None, int], ...] = (
    (None, 1), ("debug", 0), ("info", 1), ("notice", 2), ("error", 3), ("alert", 5),
)  # fmt: skip
"""Levels that a host wants, one after the other, and the first record that it hears then."""


@pytest.mark.anyio
async def test_a_host_that_shook_hands_hears_what_its_level_lets_through(served: RunningDaemon) -> None:
    heard = Heard()
    async with host(served, "legacy", logging_callback=heard) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.logging is not None
        for level, first in FIRST:
            heard.records.clear()
            if level is not None:
                with pytest.warns(MCPDeprecationWarning):
                    await client.set_logging_level(level)  # pyright: ignore[reportDeprecated]  # hosts do it
            await client.call_tool("kit_logs")
            assert heard.said == SAID[first:], level
            assert {record.logger for record in heard.records} <= {"kit_logs"}


@pytest.mark.anyio
@pytest.mark.parametrize(("level", "first"), [(None, 5), ("debug", 0), ("warning", 2)])
async def test_a_request_says_itself_what_it_wants_to_hear(
    served: RunningDaemon, level: types.LoggingLevel | None, first: int
) -> None:
    heard = Heard()
    async with host(served, "2026-07-28", logging_callback=heard, log_level=level) as client:
        await client.call_tool("kit_logs")
        assert heard.said == SAID[first:]


BROKEN = (
    "[The last working version of .toolcell/tools/kit.py was run, as what was saved since cannot be loaded: "
    "line 1: invalid syntax.]"
)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_host_and_its_model_hear_that_an_edit_broke_a_tool(served: RunningDaemon, era: str) -> None:
    heard = Heard()
    async with host(served, era, logging_callback=heard) as client:
        await client.list_tools()
        assert text(await client.call_tool("kit_shows")) == "done"
        file = served.tool("kit", "def shows(:")
        for _ in range(2):
            result = await client.call_tool("kit_shows")
            assert not result.is_error
            assert [block.text for block in result.content if isinstance(block, types.TextContent)] == [
                "done",
                BROKEN,
            ]
        if era == "legacy":  # later hosts hear records of their requests alone
            await heard.news.wait()
            assert heard.said == [("warning", f"{file} line 1: invalid syntax; what it was before is still used")]  # fmt: skip
        served.tool("kit", TOOLS.replace('"done"', '"mended"'))
        assert text(await client.call_tool("kit_shows")) == "mended"  # what was saved before it


@pytest.mark.anyio
async def test_a_host_that_wants_errors_alone_hears_no_warning_of_an_edit(served: RunningDaemon) -> None:
    heard = Heard()
    async with host(served, "legacy", logging_callback=heard) as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.set_logging_level("error")  # pyright: ignore[reportDeprecated]  # hosts do it
        await client.list_tools()
        served.tool("kit", "def shows(:")
        await client.call_tool("kit_shows")
        await client.call_tool("kit_shows")
        assert heard.said == []


@pytest.mark.anyio
async def test_records_around_a_question_are_all_heard(served: RunningDaemon) -> None:
    async def accept(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"allow": "once"})

    heard = Heard()
    async with host(served, "legacy", logging_callback=heard, elicitation_callback=accept) as client:
        result = await client.call_tool("kit_pauses")
        assert not result.is_error
        assert heard.said == [("info", "before"), ("info", "after")]


@pytest.mark.anyio
async def test_a_flood_is_bounded_and_the_call_ends(served: RunningDaemon) -> None:
    heard = Heard()
    async with host(served, "legacy", logging_callback=heard, seconds_max=60) as client:
        result = await client.call_tool("kit_floods")
        assert not result.is_error
        assert 0 < len(heard.said) <= 20_100


@pytest.mark.anyio
async def test_fastmcps_client_hears_them(served: RunningDaemon) -> None:
    heard: list[LogMessage] = []

    async def handle(message: LogMessage) -> None:
        heard.append(message)

    program, *arguments = command(served)
    transport = StdioTransport(
        program, arguments, env=environment(served), cwd=str(served.project), keep_alive=False
    )
    async with FastClient(transport, timeout=SECONDS_MAX, log_handler=handle) as client:
        await client.call_tool("kit_logs")
    assert [(message.level, message.data) for message in heard] == SAID  # it asks for all of them


@pytest.mark.anyio
async def test_a_partial_result_is_the_message_of_progress_and_no_step(served: RunningDaemon) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with host(served, "legacy") as client:
        await client.call_tool("kit_shows", progress_callback=hear)
    assert told[-1][1:] == (3, "last")
    assert 1 <= told[-1][0] < 1.1


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_title_is_the_message_of_progress_and_metadata_come_with_the_result(
    served: RunningDaemon, era: str
) -> None:
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)
        (served.project / "seen").touch()

    async with host(served, era) as client:
        done = await client.call_tool("kit_titles", progress_callback=hear)
        assert told == ["Half way"]
        assert (done.meta or {})["toolcell/metadata"] == {"title": "Half way", "done": 2, "left": {"a": [1]}}
        without = await client.call_tool("kit_logs")
        assert "toolcell/metadata" not in (without.meta or {})


def test_the_newest_records_are_kept_and_the_dropped_ones_counted() -> None:
    records = LogRecords("t")
    for number in range(RECORDS_MAX + 7):
        assert records.put(Log("info", "log", str(number)), "info")
    first, second, *rest = records.take()
    assert (first.level, first.data) == (
        "warning",
        "7 records were dropped: the tool logged faster than they were read.",
    )
    assert (second.data, len(rest), rest[-1].data) == ("7", RECORDS_MAX - 1, str(RECORDS_MAX + 6))
    assert not records
    assert records.take() == []


@pytest.mark.parametrize("wanted", [None, *LEVELS])
@pytest.mark.parametrize("source", ["log", "stdout", "stderr"])
@pytest.mark.parametrize("level", ["debug", "warning", "critical", "", "nonsense"])
def test_only_log_records_of_the_level_are_kept(
    source: Any, level: str, wanted: types.LoggingLevel | None
) -> None:
    known: Any = level if level in LEVELS else "info"
    kept = source == "log" and wanted is not None and LEVELS.index(known) >= LEVELS.index(wanted)
    assert LogRecords("t").put(Log(level, source, "text"), wanted) is kept
