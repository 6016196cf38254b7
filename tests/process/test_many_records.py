"""A daemon with a million recorded calls answers operators about as fast as one with a thousand."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.cli.page.conftest import serving, visiting
from tests.daemon.records.kept import ended
from tests.daemons import RunningDaemon
from tests.process.test_metrics import Metrics

from toolcell_proto.v1 import operator_pb2 as op
from toolcelld import database as files
from toolcelld.event_log import OperatorEvent
from toolcelld.records import runs, tables
from toolcelld.records.ledger import add_calls

COUNTS: Final = (1000, 1_000_000)
APART_SECONDS: Final = 30
"""Between two calls, so that an hour has as many in both."""
BATCH: Final = 1000
EVENT_EACH: Final = 10
"""Calls for an event."""
ROUNDS: Final = 30
"""Of which the best counts, by turns on both daemons."""
CONFIG: Final = '[records]\nretention = "366d"\nrows = 3000000\nbytes = "8GiB"\n[metrics]\nlisten = "{}"\n'

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(3600)]


def fill(path: Path, count: int) -> None:
    """Record calls and events, the last one now."""
    now = time.time()
    path.parent.mkdir(mode=0o700)
    with contextlib.closing(files.open_file(str(path), tables.SCHEMA)) as database, database:
        database.execute("BEGIN")
        for batch in range(0, count, BATCH):
            numbers = range(batch, batch + BATCH)
            apart = ((n, now - (count - n) * APART_SECONDS, f"t_{n % 50}") for n in numbers)
            add_calls(database, 1, [ended(f"c-{n}", at=at, tool=tool) for n, at, tool in apart])
        for number in range(count // EVENT_EACH):
            opened = OperatorEvent("session.opened", now - number * EVENT_EACH * APART_SECONDS)
            runs.add_event(database, 1, opened)


async def test_a_million_calls_are_asked_for_as_fast_as_a_thousand(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    async with contextlib.AsyncExitStack() as open_now:
        asked: list[dict[str, Callable[[], Awaitable[object]]]] = []
        for count in COUNTS:
            daemon = make_daemon(config="")
            address = daemon.directory / "m.sock"
            daemon.config.write_text(CONFIG.format(address))
            await asyncio.to_thread(fill, daemon.state / "records.sqlite", count)
            daemon.launch()
            operator = await open_now.enter_async_context(daemon.operate())
            visitor = await open_now.enter_async_context(
                visiting(open_now.enter_context(serving(daemon)), seconds_max=3600)
            )

            async def an_hour(operator: Any = operator) -> object:
                since = Timestamp(seconds=int(time.time()) - 3600)
                answer = await operator.ask(operator.operator.ListCalls, op.ListCallsRequest(since=since))
                assert len(answer.calls) == 100
                return answer

            async def overview(visitor: Any = visitor) -> object:
                events = visitor.answer("events?type=worker.dead&limit=300")
                return (
                    await visitor.answer("rates?since=3600"),
                    await visitor.answer("calls?limit=30"),
                    await events,
                )

            async def metrics(address: Path = address) -> object:
                return await asyncio.to_thread(Metrics(str(address)).get)

            asked.append({"calls --since 1h": an_hour, "overview": overview, "metrics": metrics})
        best = {name: [1e9, 1e9] for name in asked[0]}
        for _ in range(ROUNDS):
            for number, questions in enumerate(asked):
                for name, ask in questions.items():
                    started = time.perf_counter()
                    await ask()
                    best[name][number] = min(best[name][number], time.perf_counter() - started)
        print({name: [f"{1000 * seconds:.1f} ms" for seconds in both] for name, both in best.items()})
        for name, (few, many) in best.items():
            assert many <= 2 * few, (name, few, many)
