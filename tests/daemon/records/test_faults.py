"""Whatever keeps the records from being written loses records, says so, and is over when its cause is."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.daemon.records.kept import NOW, accepted, ended, put, recording

from toolcelld.calls.outcomes import history
from toolcelld.event_log import OperatorEvent
from toolcelld.records.ledger import Records
from toolcelld.records.query import CallFilter, EventFilter
from toolcelld.records.writer import REMEDIES, reason_of

pytestmark = pytest.mark.anyio
ALL = CallFilter()


async def ids(records: Records) -> list[str]:
    return [each.call.call_id for each in await records.calls(ALL, 1000)]


async def on_thread(records: Records, work: Callable[[sqlite3.Connection], Any]) -> Any:
    return await cast("Any", records)._writer.ask(work)


async def test_a_full_disk_loses_records_and_says_so_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("before"))
        await ids(records)
        pages = await on_thread(records, lambda database: database.execute("PRAGMA page_count").fetchone()[0])
        await on_thread(
            records, lambda database: database.execute(f"PRAGMA max_page_count = {pages}").fetchone()
        )
        for number in range(2):
            put(records, *(ended(f"lost-{number}-{each}", message="x" * 4000) for each in range(50)))
            assert await ids(records) == ["before"]
        assert "full" in records.fault
        assert records.lost == 100
        (notice,) = records.notices
        assert "100 records are lost" in notice.text
        await on_thread(
            records, lambda database: database.execute("PRAGMA max_page_count = 1000000").fetchone()
        )
        put(records, ended("after", at=NOW + 1))
        assert await ids(records) == ["after", "before"]
        assert (records.fault, records.lost) == ("", 100)
    assert [
        record.getMessage().split(": ")[0] for record in caplog.records if "lost" in record.getMessage()
    ] == [
        f"{records.path} cannot be written, records are lost",
        f"{records.path} is written again; 100 records were lost.",
    ]


async def test_a_directory_that_cannot_be_used_loses_records_until_it_can(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.write_text("a file where the directory should be")
    async with recording(place) as records:
        put(records, ended("lost"))
        assert await ids(records) == []
        assert records.fault
        assert records.lost == 1
        place.unlink()
        put(records, ended("after"))
        assert await ids(records) == ["after"]
        assert not records.fault


NEWER: Final = "Install the newer version again, or move the file away"


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "fault", "remedy"),
    [(_newer, "it has schema 99", NEWER), (Path.mkdir, "Is a directory (", "mend the file system")],
    ids=["newer", "directory"],
)
async def test_records_that_cannot_be_used_say_so_where_they_are_missed(
    tmp_path: Path, make: Callable[[Path], None], fault: str, remedy: str
) -> None:
    make(tmp_path / "records.sqlite")
    async with recording(tmp_path) as records:
        put(records, ended("lost"))
        assert await ids(records) == []
        assert fault in records.fault
        (notice,) = records.notices
        assert remedy in notice.remedy


def test_records_of_another_user_are_to_be_given_back() -> None:
    assert "Give the file" in REMEDIES[type(OSError(errno.EACCES, "no", "/r"))]
    assert reason_of(OSError(errno.EACCES, "no", "/r")) == "no (/r)"


async def test_what_cannot_be_read_is_told_until_it_can(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("one"))
        await ids(records)
        await on_thread(records, lambda database: database.execute("ALTER TABLE calls RENAME TO other"))
        assert await ids(records) == []
        assert "no such table" in records.fault
        await on_thread(records, lambda database: database.execute("ALTER TABLE other RENAME TO calls"))
        assert await ids(records) == ["one"]
        assert records.fault == ""


async def test_a_read_only_database_loses_records_until_it_can_be_written(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("before"))
        await ids(records)
        await on_thread(records, lambda database: database.execute("PRAGMA query_only = ON").fetchall())
        put(records, ended("lost"))
        assert await ids(records) == ["before"]
        assert "readonly" in records.fault
        await on_thread(records, lambda database: database.execute("PRAGMA query_only = OFF").fetchall())
        put(records, ended("after", at=NOW + 1))
        assert await ids(records) == ["after", "before"]


async def test_records_that_are_removed_are_begun_anew(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("before"), accepted("open"))
        assert await ids(records) == ["before"]
        for path in tmp_path.glob("records.sqlite*"):
            path.unlink()
        put(records, ended("after"), ended("open", at=NOW + 1))
        assert await ids(records) == ["open", "after"]
        assert records.lost == 0


@pytest.mark.sampled(one_in=5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
async def test_a_database_that_is_cut_anywhere_is_set_aside_or_goes_on(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "records.sqlite"
    async with recording(tmp_path) as records:
        put(records, *(ended(f"c-{number}", message="x" * 500) for number in range(60)))
    os.truncate(path, random.Random(seed).randrange(path.stat().st_size))
    async with recording(tmp_path) as records:
        put(records, *(ended(f"new-{number}", at=NOW + 1) for number in range(60)))
        await ids(records)  # reads what may be damaged, and then it is set aside
        put(records, ended("last", at=NOW + 2))
        assert "last" in await ids(records)
        assert not records.fault


async def test_what_waits_for_a_disk_that_hangs_has_a_bound_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FEED_MAX", 10)
    async with recording(tmp_path) as records:
        go_on, begun = threading.Event(), threading.Event()

        def hang(_: object) -> bool:
            begun.set()
            return go_on.wait(30)

        hung = asyncio.create_task(on_thread(records, hang))
        await asyncio.to_thread(begun.wait, 30)
        put(records, *(ended(f"c-{number}") for number in range(25)))
        go_on.set()
        await hung
        assert len(await ids(records)) == 10
        assert records.lost == 15


async def test_a_clock_that_moves_by_a_day_loses_nothing(tmp_path: Path) -> None:
    now = NOW
    async with recording(tmp_path, now=lambda: now, retention="7d") as records:
        for day, name in ((0.0, "first"), (86_400.0, "forward"), (-86_400.0, "back")):
            now = NOW + day
            put(records, accepted(name, at=now), ended(name, at=now))
            await ids(records)
    async with recording(tmp_path, now=lambda: now, retention="7d") as records:
        assert sorted(await ids(records)) == ["back", "first", "forward"]


async def test_an_event_that_cannot_be_written_loses_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording(tmp_path) as records:
        put(records, ended("one"), OperatorEvent("bad", details=cast("Any", {1: object()})), ended("two"))
        assert sorted(await ids(records)) == ["one", "two"]
        assert records.lost == 1
        assert [event.type for event in await records.events(EventFilter(), 10)] == ["daemon.started"]
    assert "cannot be recorded" in caplog.text
