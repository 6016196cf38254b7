"""A tool whose definition changes in a conversation: Claude Code keeps the old one, and a result tells the new one."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.claude.conftest import Claude, Start
from tests.adapters.claude.test_claude import SECONDS_MAX, result, texts
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.pinned import NOTE_CHARACTERS_MAX, PinnedDefinitions
from toolcell.adapters.read_output import READ_OUTPUT
from toolcell.client import ToolInfo

pytestmark = pytest.mark.anyio

TOOLCELL = str(Path(sys.executable).with_name("toolcell"))
BEFORE = '''
from toolcell import tool

@tool
def rate(day: str) -> str:
    """Look up a rate."""
    return "1.0"
'''
AFTER = '''
from toolcell import tool

@tool
def rate(day: str, currency: str = "EUR") -> str:
    """Look up a rate in a currency."""
    return f"2.0 {currency}"

@tool
def more() -> str:
    """More."""
    return "more"
'''


async def offered(claude: Claude, tool: str) -> None:
    """Have turns until the model is offered a tool, as the host takes up a change in its own time."""
    async with asyncio.timeout(SECONDS_MAX):
        while tool not in claude.model.offered():
            await claude.turn()


@pytest.mark.slow
@pytest.mark.parametrize("server", ["toolcell", "bridge"])
async def test_claude_code_keeps_a_definition_and_the_next_result_tells_the_new_one(
    daemon: RunningDaemon, start: Start, server: str
) -> None:
    daemon.tool("rate", BEFORE)
    bridge: dict[str, Any] = {
        "type": "stdio",
        "command": TOOLCELL,
        "args": ["--socket", daemon.socket, "mcp"],
        "alwaysLoad": True,
    }
    async with start(daemon, mcp_servers={"bridge": bridge}, allowed_tools=["mcp__bridge"]) as claude:
        name = f"mcp__{server}__rate"
        assert texts(await result(claude, Use(name, {"day": "today"})))[0] == "1.0"
        before = claude.model.offered()[name]

        daemon.tool("rate", AFTER)
        await claude.adapter.refresh(claude.client)
        await offered(claude, f"mcp__{server}__rate_more")
        assert (
            claude.model.offered()[name] == before
        )  # else Claude Code has changed, and the note is superfluous

        first = texts(await result(claude, Use(name, {"day": "today", "currency": "USD"})))
        assert first[0] == "2.0 USD"
        assert "rate was changed after this conversation began" in first[1]
        assert "Look up a rate in a currency." in first[1]
        assert '"currency": {"default": "EUR", "type": "string"}' in first[1]
        again = texts(await result(claude, Use(name, {"day": "today"})))
        assert again[0] == "2.0 EUR"
        assert not any("was changed" in text for text in again)


def info(description: str) -> ToolInfo:
    return replace(READ_OUTPUT, name="t", description=description)


def test_a_note_is_given_once_for_each_change_and_is_bounded() -> None:
    pinned = PinnedDefinitions()
    assert pinned.note(info("never listed")) == ""
    pinned.listed({"t": info("first")})
    assert (pinned.note(info("first")), pinned.note(None)) == ("", "")
    pinned.listed({"t": info("second")})
    assert "second" in pinned.note(info("second"))
    assert pinned.note(info("second")) == ""
    note = pinned.note(info("x" * NOTE_CHARACTERS_MAX))
    assert "too long for this note" in note
    assert len(note) < 300
