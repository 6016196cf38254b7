"""Who calls, joined by the id of the use, whatever comes first."""

from __future__ import annotations

import asyncio

import pytest
from claude_agent_sdk import AssistantMessage, TextBlock, ToolUseBlock, UserMessage

from toolcell.adapters.base import Origin
from toolcell.adapters.claude import callers
from toolcell.adapters.claude.callers import KEPT_MAX, Callers

pytestmark = pytest.mark.anyio


def asks_for(*uses: str, message_id: str = "m") -> AssistantMessage:
    blocks = [ToolUseBlock(use, "mcp__toolcell__t", {}) for use in uses]
    return AssistantMessage(content=[TextBlock("Well."), *blocks], model="", message_id=message_id)


async def test_the_hook_and_the_message_say_who_calls() -> None:
    known = Callers()
    known.observed(asks_for("u1", "u2"))
    known.hooked("u1", "s", "")
    known.hooked("u2", "s", "helper")
    assert await known.of("u1") == Origin("s", "m", "main", "u1")
    assert await known.of("u2") == Origin("s", "m", "helper", "u2")


async def test_a_message_that_is_read_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MESSAGE_SECONDS_MAX", 60.0)
    known = Callers()
    known.observed(UserMessage(content="before"))
    known.hooked("u", "s", "")
    waiting = asyncio.create_task(known.of("u"))
    await asyncio.sleep(0)
    assert not waiting.done()
    known.observed(asks_for("u"))
    known.observed(asks_for("u"))  # the same again is no harm
    assert await waiting == Origin("s", "m", "main", "u")


async def test_a_message_that_is_not_read_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MESSAGE_SECONDS_MAX", 0.01)
    known = Callers()
    known.observed(asks_for("other"))
    known.hooked("u", "s", "")
    assert await known.of("u") == Origin("s", "", "main", "u")


async def test_without_an_observer_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MESSAGE_SECONDS_MAX", 60.0)
    known = Callers()
    known.hooked("u", "s", "")
    waiting = asyncio.create_task(known.of("u"))
    await asyncio.sleep(0)
    assert waiting.done()
    assert await waiting == Origin("s", "", "main", "u")


async def test_a_use_that_nobody_announced_has_only_its_id() -> None:
    known = Callers()
    assert await known.of("u") == Origin("", "", "", "u")
    assert await known.of("") == Origin("", "", "", None)


async def test_uses_that_never_come_are_forgotten() -> None:
    known = Callers()
    for number in range(KEPT_MAX + 1):
        known.hooked(f"u{number}", "s", "")
        known.observed(asks_for(f"u{number}", message_id=f"m{number}"))
    last = f"u{KEPT_MAX}"
    assert await known.of("u1") == Origin("s", "m1", "main", "u1")
    assert await known.of(last) == Origin("s", f"m{KEPT_MAX}", "main", last)
    known.observed(asks_for("u0", message_id="again"))
    assert await known.of("u0") == Origin("", "again", "", "u0")
