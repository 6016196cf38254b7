"""The schema and its versions, and what leaves the records when it is too old or too much."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.records.kept import NOW, ended, put, recording

from toolcelld import database as files
from toolcelld.calls.outcomes.outcome import Facts, Kind, Outcome
from toolcelld.config.schema import RecordsSection
from toolcelld.event_log import OperatorEvent
from toolcelld.output.spill import KeptOutput, OutputOrigin
from toolcelld.records import query, rows, runs, tables
from toolcelld.records.ledger import add_calls
from toolcelld.records.query import CallFilter, EventFilter

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def test_records_of_the_version_before_are_migrated_with_their_calls(tmp_path: Path) -> None:
    path = str(tmp_path / "records.sqlite")
    before = tables.SCHEMA[:-1]
    with contextlib.closing(files.open_file(path, before)) as database:
        add_calls(database, 1, [ended("c-1", Kind.CRASHED, "SIGSEGV")])
    async with recording(tmp_path) as records:
        (found,) = await records.calls(CallFilter(), 10)
        assert str(found.call.outcome) == "crashed (SIGSEGV)"
        assert [event.type for event in await records.events(EventFilter(), 10)] == ["daemon.started"]
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(tables.SCHEMA),)


async def test_what_is_older_than_the_retention_goes(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("old", at=NOW - 8 * DAY), ended("new", at=NOW - 6 * DAY))
        put(records, OperatorEvent("session.opened", NOW - 8 * DAY))
        assert len(await records.calls(CallFilter(), 10)) == 2
    async with recording(tmp_path, retention="7d") as records:
        assert [each.call.call_id for each in await records.calls(CallFilter(), 10)] == ["new"]
        assert "session.opened" not in [each.type for each in await records.events(EventFilter(), 10)]


async def test_no_more_rows_are_kept_than_the_bound(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, *(ended(f"c-{number}", at=NOW + number) for number in range(50)))
    async with recording(tmp_path, rows=10) as records:
        found = [each.call.call_id for each in await records.calls(CallFilter(), 100)]
    assert found == [f"c-{number}" for number in range(49, 39, -1)]


async def test_no_more_bytes_are_kept_than_the_bound_and_the_file_shrinks(tmp_path: Path) -> None:
    path, bound = tmp_path / "records.sqlite", 400_000
    async with recording(tmp_path) as records:
        put(records, *(ended(f"c-{number}", at=NOW + number, message="x" * 4000) for number in range(400)))
    before = path.stat().st_size
    assert before > 3 * bound
    async with recording(tmp_path, bytes=bound) as records:
        found = [each.call.call_id for each in await records.calls(CallFilter(), 1000)]
        assert 0 < records.size_bytes <= bound
    assert found[0] == "c-399"
    assert path.stat().st_size < before / 2


FILTERS = [
    CallFilter(),
    CallFilter(tool="a"),
    CallFilter(session_id="a"),
    CallFilter(agent="a"),
    CallFilter(outcome="ok"),
    CallFilter(outcome="crashed"),
    CallFilter(outcome="SIGSEGV"),
    CallFilter(failed=True),
    CallFilter(tool="a", failed=True),
    CallFilter(tool="a", session_id="a", agent="a", outcome="ok", failed=True),
]


def plan_of(database: sqlite3.Connection, sql: str, parameters: list[object]) -> str:
    return " ".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))


def test_every_question_is_answered_from_an_index_without_sorting() -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        files.migrate(database, tables.SCHEMA)
        asked = [
            query.calls_sql(wanted._replace(since=since, until=until), 100)
            for wanted in FILTERS
            for since, until in ((0.0, 0.0), (NOW, 0.0), (0.0, NOW), (NOW, NOW + 1))
        ]
        asked += [
            query.events_sql(EventFilter(*wanted, since), 100)
            for since in (0.0, NOW)
            for wanted in (
                ("", "", ""),
                ("decision.", "", ""),
                ("worker.dead", "", ""),
                ("", "s", ""),
                ("", "", "t"),
            )
        ]
        asked.append(query.find_sql("c-", 10))
        for sql, parameters in asked:
            plan = plan_of(database, sql, parameters)
            assert "SEARCH" in plan, (sql, plan)
            assert "USING INDEX" in plan, (sql, plan)
            # Rows of one time are put into the order of their numbers.
            assert "TEMP B-TREE FOR ORDER BY" not in plan, (sql, plan)


@pytest.mark.parametrize("wanted", FILTERS)
async def test_calls_in_memory_are_chosen_as_those_of_the_records_are(
    tmp_path: Path, wanted: CallFilter
) -> None:
    calls = [
        ended("c-1", tool="a", session_id="a", agent="a"),
        ended("c-2", Kind.CRASHED, "SIGSEGV", tool="a", at=NOW + 1),
        ended("c-3", Kind.TIMED_OUT, "timeout", session_id="a", at=NOW + 2),
        ended("c-4", agent="a", at=NOW + 3)._replace(outcome=None, refusal=("UNKNOWN_TOOL", "there is none")),
    ]
    async with recording(tmp_path) as records:
        put(records, *calls)
        for bounds in ((0.0, 0.0), (NOW + 1, 0.0), (0.0, NOW + 2), (NOW + 1, NOW + 3)):
            now = wanted._replace(since=bounds[0], until=bounds[1])
            found = [each.call.call_id for each in await records.calls(now, 10)]
            assert found == [call.call_id for call in reversed(calls) if now.fits(call)], now


HOSTILE = ("<script>alert(1)</script>", "[red]x[/red]", "\x1b[2J\x00\r\n\u202e\ud800", "\N{PILE OF POO}" * 10_000, "'; DROP TABLE calls; --")  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
async def test_any_text_is_recorded_and_found_again(tmp_path: Path, text: str) -> None:
    call = ended("c-1", message=text, arguments=json.dumps({"text": text[:500]}).encode())._replace(
        session_id=text, tool=text, path=text, digest=text, worker_id=text, agent=text, agent_name=text,
        directory=text, agent_session_id=text, message_id=text, story=((NOW - 1, text), (NOW, text)),
    )  # fmt: skip
    async with recording(tmp_path, arguments=True) as records:
        put(records, call)
        put(records, OperatorEvent(text, NOW, text, text, text, text, text, {text: text}))
        shown = rows.text_of(text)
        (found,) = await records.calls(CallFilter(tool=shown), 10)
        (event,) = await records.events(EventFilter(shown), 10)
        assert not records.lost
    assert found.call.tool == found.call.path == event.tool == shown
    assert found.call.story == ((NOW - 1, shown), (NOW, shown))
    assert len(shown) <= 1024 * 10
    json.dumps([found.arguments, found.result]).encode()


async def test_figures_that_are_none_are_recorded_as_some(tmp_path: Path) -> None:
    call = ended("c-1")
    assert call.outcome is not None
    facts = call.outcome.facts._replace(
        cpu_seconds=float("nan"), memory_peak_bytes=2**70, output_bytes=-1, run_seconds=float("inf")
    )
    async with recording(tmp_path) as records:
        put(records, call._replace(outcome=call.outcome._replace(facts=facts)))
        (found,) = await records.calls(CallFilter(), 10)
        assert not records.lost
    assert found.call.outcome is not None
    kept = found.call.outcome.facts
    assert (kept.cpu_seconds, kept.memory_peak_bytes, kept.output_bytes) == (0.0, 2**63 - 1, 0)


@pytest.mark.parametrize("field", [None, "place", *Outcome._fields[3:], *Facts._fields])
def test_a_row_has_all_that_is_known_of_a_call(field: str | None) -> None:
    """Also where one thing alone is other than it is for most calls."""
    output = KeptOutput(
        "o-1",
        OutputOrigin("s-1", b"", "c-1", "echo", "result"),
        9,
        8,
        7,
        complete=True,
        created=1.0,
        expires=2.0,
    )
    log = dataclasses.replace(output, origin=dataclasses.replace(output.origin, source="stdout"))
    other: dict[str, Any] = {
        "output": output, "ran": False, "stopped": "killed", "side_effects_possible": True, "notes": ("a", "b"),
        "facts": Facts(worker_id="w-1"), "worker_id": "w-1", "state_lost": True, "logs": (log,), "refused_hosts": ("a:1",),
        "moved_aside": ("x", "é"), "metadata": b"", "node": "n1",
    }  # fmt: skip
    call = ended("c-1")._replace(arguments=b"", result=b"")
    outcome = call.outcome
    assert outcome is not None
    if field == "place":
        call = call._replace(node="n1", fence=3)
    elif field in Outcome._fields:
        call = call._replace(outcome=outcome._replace(**{field: other[field]}))
    elif field is not None:
        facts = outcome.facts._replace(**{field: other.get(field, 3)})
        call = call._replace(outcome=outcome._replace(facts=facts))
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        files.migrate(database, tables.SCHEMA)
        add_calls(database, 1, [call])
        (found,) = database.execute(*query.calls_sql(CallFilter(), 1)).fetchall()
    assert rows.call_of(found).call == call


async def test_arguments_and_results_are_kept_only_if_they_are_to_be_and_without_secrets(
    tmp_path: Path,
) -> None:
    call = ended("c-1", arguments=b'{"password": "hunter2", "text": "a"}')
    async with recording(tmp_path, arguments=True) as records:
        put(records, call)
        (found,) = await records.calls(CallFilter(), 10)
    assert (found.arguments, found.result) == ('{"password": "********", "text": "a"}', "b")
    assert b"hunter2" not in (tmp_path / "records.sqlite").read_bytes()


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # two million rows are written first
def test_a_million_calls_are_searched_as_fast_as_a_thousand(tmp_path: Path) -> None:
    taken: list[float] = []
    for count in (1000, 1_000_000):
        path = str(tmp_path / f"{count}.sqlite")
        with contextlib.closing(files.open_file(path, tables.SCHEMA)) as database:
            with database:
                database.execute("BEGIN")
                for batch in range(0, count, 1000):
                    numbers = range(batch, batch + 1000)
                    add_calls(database, 1, [ended(f"c-{n}", at=NOW - (count - n) * 30) for n in numbers])
                for number in range(count):
                    runs.add_event(database, 1, OperatorEvent("session.opened", NOW - number * 30))
            asked = [query.calls_sql(wanted._replace(since=NOW - 3600), 100) for wanted in FILTERS]
            asked.append(query.events_sql(EventFilter(since=NOW - 3600), 100))
            best = 1e9
            for _ in range(20):
                started = time.perf_counter()
                for sql, parameters in asked:
                    database.execute(sql, parameters).fetchall()
                best = min(best, time.perf_counter() - started)
            taken.append(best)
    assert taken[1] <= 2 * taken[0], taken


def test_pruning_ends_even_where_an_empty_file_is_larger_than_the_bound(tmp_path: Path) -> None:
    with contextlib.closing(files.open_file(str(tmp_path / "r.sqlite"), tables.SCHEMA)) as database:
        assert list(tables.prune(database, RecordsSection.model_validate({"bytes": 1}), NOW)) == []
