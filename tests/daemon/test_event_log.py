"""The event log: the last lines, and the number of lines that a slow reader lost."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.daemon import Daemon
from toolcelld.event_log import (
    BYTES_MAX,
    KIND_LINES_MAX,
    LINES_MAX,
    QUEUE_MAX,
    TEXT_CHARACTERS_MAX,
    WINDOW_SECONDS,
    Broadcast,
    EventLog,
    FloodFilter,
    LogLine,
    OneLineFormatter,
    log_uncaught_exceptions,
)
from toolcelld.rpc.operator_service import Operator

pytestmark = pytest.mark.anyio


def line(text: str, tool: str = "", call_id: str = "") -> LogLine:
    return LogLine(0.0, "log", "info", text, tool, call_id)


class Written(logging.Handler):
    """A handler that remembers what was written."""

    def __init__(self, flood: FloodFilter) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.addFilter(flood)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def test_a_flood_of_one_kind_is_bounded_and_counted_and_hides_no_other_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, now = asyncio.get_running_loop(), 1000.0
    monkeypatch.setattr(loop, "time", lambda: now)
    logger = logging.getLogger("toolcelld.flooded")
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr(logger, "handlers", [])
    flood = FloodFilter(loop)
    handlers = [Written(flood), Written(flood)]
    for handler in handlers:
        logger.addHandler(handler)

    async def refuse(count: int) -> None:
        for number in range(count):
            logger.warning("connection %d is refused", number)
        for _ in range(3):
            await asyncio.sleep(0)

    await asyncio.to_thread(logger.info, "before")
    await refuse(KIND_LINES_MAX + 500)
    logger.warning("the daemon is stopping")
    for handler in handlers:
        assert len(handler.lines) == KIND_LINES_MAX + 2
        assert handler.lines[-1] == "the daemon is stopping"
    now += WINDOW_SECONDS
    await refuse(0)
    said = "500 more records like this one were left out in the last minute: connection 60 is refused"
    assert [handler.lines[-1] for handler in handlers] == [said, said]
    await refuse(1)
    assert handlers[0].lines[-1] == "connection 0 is refused"


def test_the_oldest_lines_are_dropped_first() -> None:
    book = EventLog()
    for number in range(LINES_MAX + 5):
        book.write(line(str(number)))
    assert [found.text for found in book.last(LINES_MAX + 5)][:1] == ["5"]
    book.write(line("x" * BYTES_MAX))
    assert len(book.last(LINES_MAX)) == 1


def test_the_last_lines_belong_to_the_requested_tool_or_call() -> None:
    book = EventLog()
    for text, tool, call_id in (("a", "lint", "c-1"), ("b", "test", "c-2"), ("c", "lint", "c-3")):
        book.write(line(text, tool, call_id))
    assert [found.text for found in book.last(10, "lint")] == ["a", "c"]
    assert [found.text for found in book.last(1, "lint")] == ["c"]
    assert [found.text for found in book.last(10, "c-2")] == ["b"]


async def test_a_slow_reader_gets_the_number_of_lost_lines() -> None:
    feed: Broadcast[int] = Broadcast()
    with feed.follow() as reader:
        first = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        feed.publish(0)
        assert await first == (0, 0)
        for number in range(1, QUEUE_MAX + 4):
            feed.publish(number)
        assert await anext(reader) == (4, 3)
        assert await anext(reader) == (5, 0)


async def test_a_reader_is_removed_when_it_follows_no_more() -> None:
    feed: Broadcast[int] = Broadcast()
    with feed.follow():
        assert len(feed.readers) == 1
    assert feed.readers == set()


async def test_a_line_between_the_last_lines_and_the_next_read_is_not_missed() -> None:
    book = EventLog()
    book.write(line("before"))
    service = Operator(cast("Daemon", SimpleNamespace(services=SimpleNamespace(logbook=book), sessions=None)))
    parts = aiter(service.TailLogs(op.TailLogsRequest(follow=True), cast("Any", None)))
    assert [each.text for each in (await anext(parts)).lines] == ["before"]
    book.write(line("after"))
    async with asyncio.timeout(60):
        assert [each.text for each in (await anext(parts)).lines] == ["after"]


FORGED = "x\nERROR toolcelld: forged\r\x1b[2J\x9b\u202e\u2028"


def raised(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_record_is_one_line_whatever_is_in_its_arguments_and_exceptions() -> None:
    formatter = OneLineFormatter("%(levelname)s %(name)s: %(message)s")
    error = raised(FORGED)
    record = logging.LogRecord("toolcelld", logging.ERROR, "", 1, "%s failed", (FORGED,), None)
    assert formatter.format(record) == (
        "ERROR toolcelld: x\\nERROR toolcelld: forged\\r\\x1b[2J\\x9b\\u202e\\u2028 failed"
    )
    record = logging.LogRecord(
        "toolcelld", logging.ERROR, "", 1, "failed", (), (type(error), error, error.__traceback__)
    )
    line = formatter.format(record)
    assert line.startswith("ERROR toolcelld: failed\\nTraceback (most recent call last):\\n")
    assert line.endswith("ValueError: x\\nERROR toolcelld: forged\\r\\x1b[2J\\x9b\\u202e\\u2028")
    assert line.isprintable()


def test_a_long_record_is_cut() -> None:
    record = logging.LogRecord("toolcelld", logging.INFO, "", 1, "%s", ("\n" * 10_000_000,), None)
    assert len(OneLineFormatter("%(message)s").format(record)) == TEXT_CHARACTERS_MAX


def test_uncaught_exceptions_are_records_as_well(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "excepthook", None)
    monkeypatch.setattr(sys, "unraisablehook", None)
    monkeypatch.setattr(threading, "excepthook", None)
    log_uncaught_exceptions()
    error = raised(FORGED)
    group = BaseExceptionGroup("of a task group", [error])
    sys.excepthook(type(group), group, error.__traceback__)
    texts = [OneLineFormatter("%(message)s").format(record) for record in caplog.records]
    assert texts[0].startswith("The process ends by ValueError: ")
    assert any(text.startswith("  ") and "of a task group" in text for text in texts[1:])
    assert all(text.isprintable() and len(text) < TEXT_CHARACTERS_MAX for text in texts)
    assert len(texts) < KIND_LINES_MAX
    caplog.clear()
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
