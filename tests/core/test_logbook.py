"""The logbook: the last lines, and readers that are told what they missed."""

from __future__ import annotations

import asyncio

import pytest

from toolcelld.event_log import BYTES_MAX, LINES_MAX, QUEUE_MAX, Broadcast, EventLog, LogLine

pytestmark = pytest.mark.anyio


def line(text: str, tool: str = "", call_id: str = "") -> LogLine:
    return LogLine(0.0, "log", "info", text, tool, call_id)


def test_the_oldest_lines_go_first() -> None:
    book = EventLog()
    for number in range(LINES_MAX + 5):
        book.write(line(str(number)))
    assert [found.text for found in book.last(LINES_MAX + 5)][:1] == ["5"]
    book.write(line("x" * BYTES_MAX))
    assert len(book.last(LINES_MAX)) == 1


def test_the_last_lines_are_about_the_tool_or_the_call_that_was_asked_for() -> None:
    book = EventLog()
    for text, tool, call_id in (("a", "lint", "c-1"), ("b", "test", "c-2"), ("c", "lint", "c-3")):
        book.write(line(text, tool, call_id))
    assert [found.text for found in book.last(10, "lint")] == ["a", "c"]
    assert [found.text for found in book.last(1, "lint")] == ["c"]
    assert [found.text for found in book.last(10, "c-2")] == ["b"]


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed() -> None:
    feed: Broadcast[int] = Broadcast()
    reader = feed.follow()
    first = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    feed.publish(0)
    assert await first == (0, 0)
    for number in range(1, QUEUE_MAX + 4):
        feed.publish(number)
    assert await anext(reader) == (4, 3)
    assert await anext(reader) == (5, 0)
    await reader.aclose()


async def test_a_reader_that_has_gone_is_forgotten() -> None:
    feed: Broadcast[int] = Broadcast()
    reader = feed.follow()
    first = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    feed.publish(1)
    await first
    await reader.aclose()
    feed.publish(2)
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
