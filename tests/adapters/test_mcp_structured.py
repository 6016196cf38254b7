"""Structured output through `toolcell mcp`, as the clients of the MCP SDK and of FastMCP read it.

Both clients refuse a result whose structured content is missing or does not fit the schema that the tool was listed with,
so that a call which returns is a call whose value was right.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport
from mcp import types
from tests.adapters.test_mcp_bridge import SECONDS_MAX, command, environment, host
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOLS = '''
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Optional, TypedDict
from pydantic import BaseModel, Field
from toolcell import Image, ToolContext, ToolError, ToolResult, tool

class Row(BaseModel):
    path: str
    line: int = Field(ge=1)

class Report(BaseModel):
    """What was found."""
    rows: list[Row]
    day: date = date(2026, 7, 28)

@dataclass
class Point:
    x: int
    y: int = 0

class Keys(TypedDict):
    name: str
    count: int

class Tree(BaseModel):
    name: str
    below: list["Tree"] = []

@tool
def model(lines: int = 1) -> Report:
    """A model."""
    return Report(rows=[Row(path=f"{n}.py", line=n + 1) for n in range(lines)])

@tool
def point() -> Point:
    """A dataclass."""
    return Point(3)

@tool
def keys() -> Keys:
    """A TypedDict."""
    return {"name": "a", "count": 2}

@tool
def mapping() -> dict[str, float]:
    """A mapping."""
    return {"a": 0.5}

@tool
def anything() -> dict:
    """Any mapping."""
    return {"a": [1, {"b": None}]}

@tool
def number() -> int:
    """A number."""
    return 42

@tool
def rows() -> list[Row]:
    """A list of models."""
    return [Row(path="a", line=1)]

@tool
def tree() -> Tree:
    """A model of itself."""
    return Tree(name="a", below=[Tree(name="b")])

@tool
async def perhaps(there: bool = False) -> Optional[Point]:
    """A value or none."""
    return Point(1) if there else None

@tool
def ours() -> Point:
    """A result with a text of its own."""
    return ToolResult("one, two", details={"x": 1, "y": 2})

@tool
def text() -> str:
    """Text."""
    return "text"

@tool
def untold():
    """Data without a word."""
    return {"a": 1}

@tool
def maybe_text() -> str | dict[str, int]:
    """Text, or not."""
    return {"a": 1}

@tool
def shown() -> list[Any]:
    """Anything, as a picture."""
    return [Image(data=b"\\x89PNG\\r\\n\\x1a\\n")]

@tool
def wrong() -> list[int]:
    """Something else than it says."""
    return ["a", 2, "b"]

@tool
def half() -> Report:
    """A mapping that lacks what the schema has."""
    return {"rows": [{"path": "a", "line": 0}]}

@tool
def failing() -> Point:
    """Fail."""
    raise ToolError("no point")

@tool(output_bytes=1000)
def beside() -> dict:
    """A short text, and far more data."""
    return ToolResult("short", details={"a": "x" * 2000})

@tool(output_lines=2)
def lines() -> dict:
    """A text of some lines, and little data."""
    return ToolResult("a\\nb\\nc\\nd", details={"a": 1})

@tool
def steps() -> list[int]:
    """Yield."""
    yield "one"
    yield "two"
'''


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with tools that return values of many kinds."""
    daemon.tool("kit", TOOLS)
    return daemon


@asynccontextmanager
async def fast(daemon: RunningDaemon) -> AsyncGenerator[FastClient[Any]]:
    """FastMCP's client, which has started the bridge."""
    program, *arguments = command(daemon)
    transport = StdioTransport(
        program, arguments, env=environment(daemon), cwd=str(daemon.project), keep_alive=False
    )
    async with FastClient(transport, timeout=SECONDS_MAX) as client:
        yield client


def said(result: Any) -> str:
    """All the texts of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


VALUES: dict[str, Any] = {
    "model": {"rows": [{"path": "0.py", "line": 1}], "day": "2026-07-28"},
    "point": {"x": 3, "y": 0},
    "keys": {"name": "a", "count": 2},
    "mapping": {"a": 0.5},
    "anything": {"a": [1, {"b": None}]},
    "number": {"result": 42},
    "rows": {"result": [{"path": "a", "line": 1}]},
    "tree": {"name": "a", "below": [{"name": "b", "below": []}]},
    "perhaps": {"result": None},
    "ours": {"x": 1, "y": 2},
}
WITHOUT = ("text", "untold", "maybe_text", "shown", "steps")


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_return_annotation_is_a_schema_and_the_value_is_structured_content(
    served: RunningDaemon, era: str
) -> None:
    async with host(served, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, value in VALUES.items():
            schema = tools[f"kit_{name}"].output_schema
            assert schema is not None
            assert schema["type"] == "object"
            result = await client.call_tool(f"kit_{name}")
            assert (result.structured_content, result.is_error) == (value, False), name
            if name not in ("ours", "perhaps"):
                shown = (
                    {"result": json.loads(said(result))} if "result" in value else json.loads(said(result))
                )
                assert shown == value
        for name in WITHOUT:
            assert tools[f"kit_{name}"].output_schema is None
            result = await client.call_tool(f"kit_{name}")
            assert (result.structured_content, result.is_error) == (None, False), name


async def test_fastmcps_client_has_typed_data(served: RunningDaemon) -> None:
    async with fast(served) as client:
        assert (await client.call_tool("kit_number")).data == 42
        report = (await client.call_tool("kit_model", {"lines": 2})).data
        assert [(row.path, row.line) for row in report.rows] == [("0.py", 1), ("1.py", 2)]
        (row,) = (await client.call_tool("kit_rows")).data
        assert (row.path, row.line) == ("a", 1)
        assert (await client.call_tool("kit_mapping")).data == {"a": 0.5}
        assert (await client.call_tool("kit_perhaps")).data is None
        assert (await client.call_tool("kit_text")).data is None


async def test_a_value_that_cannot_be_sent_as_data_is_an_error_with_its_text(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        for name, (why, text) in {
            "wrong": ('result[0] should be of type integer, got "a"; result[2]', '["a",2,"b"]'),
            "half": ("rows[0].line should be at least 1, got 0", '"line":0'),
            "beside": ("it is longer than", "short"),
            "lines": ("it is longer than", "a\n"),
        }.items():
            result = await client.call_tool(f"kit_{name}")
            assert result.structured_content is None
            assert result.is_error, name
            assert said(result).startswith(
                f"The tool ran and returned. Its value cannot be sent as data: {why}"
            )
            assert text in said(result)
        failed = await client.call_tool("kit_failing")
        assert (said(failed), failed.is_error, failed.structured_content) == ("no point", True, None)


async def test_a_long_value_is_cut_and_none_of_it_is_sent_as_data(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        result = await client.call_tool("kit_model", {"lines": 4000})
        assert result.structured_content is None
        assert result.is_error
        assert "toolcell_read_output(output_id=" in said(result)
        assert len(said(result)) < 60_000


@pytest.mark.parametrize("name", ["claude-code", "github-copilot-developer", "opencode"])
async def test_an_agent_that_shows_data_in_place_of_text_gets_the_text(
    served: RunningDaemon, name: str
) -> None:
    info = types.Implementation(name=name, version="1")
    async with host(served, "legacy", client_info=info) as client:
        assert not any(tool.output_schema for tool in (await client.list_tools()).tools)
        result = await client.call_tool("kit_point")
        assert (said(result), result.structured_content) == ('{"x":3,"y":0}', None)
        odd = await client.call_tool("kit_wrong")
        assert (said(odd), odd.is_error) == ('["a",2,"b"]', False)
