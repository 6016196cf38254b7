"""What is recorded, and that it is there for the next daemon."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.records.kept import NOW, accepted, ended, put, recording

from toolcelld import database as files
from toolcelld.calls.outcomes.history import TEXTS, CallHistory, CallSummary
from toolcelld.calls.outcomes.outcome import Kind
from toolcelld.config.schema import RecordsSection
from toolcelld.event_log import Broadcast, OperatorEvent
from toolcelld.records import tables
from toolcelld.records.ledger import Records, add_calls
from toolcelld.records.query import CallFilter, EventFilter, calls_sql
from toolcelld.records.rows import call_of

pytestmark = pytest.mark.anyio
ALL = CallFilter()


async def test_a_call_is_in_the_records_of_the_next_daemon_as_it_ended(tmp_path: Path) -> None:
    call = ended("c-1", Kind.CRASHED, "SIGSEGV", message="it crashed")
    async with recording(tmp_path) as records:
        put(records, accepted("c-1"), call)
    async with recording(tmp_path) as records:
        (found,) = await records.calls(ALL, 10)
    assert found.call == call._replace(arguments=b"", result=b"")
    assert (found.arguments, found.result) == ("", "")


async def test_the_calls_of_a_batch_are_in_its_order_in_a_few_statements(tmp_path: Path) -> None:
    names = [f"c-{number:02}" for number in range(45)]
    path, told = str(tmp_path / "records.sqlite"), list[str]()
    records: Any = Records(
        path, RecordsSection(), CallHistory(), Broadcast[OperatorEvent]()
    )  # whose thread is this one
    with contextlib.closing(files.open_file(path, tables.SCHEMA)) as database:
        database.set_trace_callback(told.append)
        records._write(database, [*map(ended, names)])
        found = database.execute("SELECT call_id FROM calls ORDER BY number").fetchall()
    assert [name for (name,) in found] == names
    assert len([sql for sql in told if sql.startswith("INSERT INTO calls")]) == 4  # of 32, 8, 4 and 1


def test_the_calls_of_a_batch_share_what_they_have_in_common_and_nothing_else() -> None:
    refused = ended("c-0")._replace(outcome=None, refusal=("UNKNOWN_TOOL", "there is none"))
    named: list[dict[str, Any]] = [
        {name: "other"} for name in CallSummary._fields[1:TEXTS] if name != "state"
    ]
    calls = [
        refused,
        ended("c-1"),
        ended("c-2", Kind.CRASHED, "SIGSEGV", message="it crashed"),
        ended("c-3", Kind.CRASHED, "SIGSEGV", message="again"),
        *(ended(f"c-{number}")._replace(**values) for number, values in enumerate(named, 4)),
    ] * 2
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        files.migrate(database, tables.SCHEMA)
        add_calls(database, 1, calls)
        found = [call_of(row).call for row in database.execute(*calls_sql(ALL, 100)).fetchall()]
    kept = [call._replace(arguments=b"", result=b"") for call in calls]
    assert sorted(found, key=repr) == sorted(map(with_worker, kept), key=repr)


def with_worker(call: CallSummary) -> CallSummary:
    """Return a call whose facts have the worker that its summary has, as that is one column."""
    outcome = call.outcome
    if outcome is None:
        return call
    return call._replace(outcome=outcome._replace(facts=outcome.facts._replace(worker_id=call.worker_id)))


async def test_a_call_that_its_daemon_took_along_is_lost_and_said_so_once(tmp_path: Path) -> None:
    async with recording(tmp_path, ends=False) as records:
        put(records, accepted("c-1"), accepted("c-2"))
        put(records, ended("c-2"))
    found: dict[str, CallSummary] = {}
    events: list[str] = []
    for _ in range(2):
        async with recording(tmp_path) as records:
            found = {each.call.call_id: each.call for each in await records.calls(ALL, 10)}
            events = [each.type for each in await records.events(EventFilter(), 10)]
    assert sorted(found) == ["c-1", "c-2"]
    assert (lost := found["c-1"].outcome) is not None
    assert (lost.kind, lost.cause) == (Kind.INTERNAL, "daemon_killed")
    assert "was killed" in lost.message
    assert (kept := found["c-2"].outcome) is not None
    assert kept.kind is Kind.OK
    assert events[::-1] == [
        "daemon.started",
        "daemon.lost",
        "daemon.started",
        "daemon.stopped",
        "daemon.started",
    ]


async def test_the_calls_of_another_daemon_that_is_alive_are_not_lost(tmp_path: Path) -> None:
    async with recording(tmp_path) as one:
        put(one, accepted("c-1"))
        assert await one.calls(ALL, 10) == []
        async with recording(tmp_path) as other:
            assert await other.calls(ALL, 10) == []
        put(one, ended("c-1"))
        assert [each.call.call_id for each in await one.calls(ALL, 10)] == ["c-1"]


async def test_events_and_decisions_are_kept_but_for_those_that_calls_have(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(
            records,
            OperatorEvent("session.opened", NOW, session_id="s-1"),
            OperatorEvent("call.ended", NOW, call_id="c-1"),
            OperatorEvent("worker.dead", NOW, details={"cause": "SIGSEGV", "stderr": "…"}),
            OperatorEvent("decision.disable", NOW, tool="echo", message="the site is down"),
        )
        (decision,) = await records.events(EventFilter("decision."), 10)
        assert (decision.tool, decision.message) == ("echo", "the site is down")
        death, opened, _ = (await records.events(EventFilter(), 10))[1:]
        assert death.details == {"cause": "SIGSEGV", "stderr": "…"}
        assert opened.session_id == "s-1"
