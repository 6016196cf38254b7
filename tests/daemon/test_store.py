"""The store: persistence, sharing, damage, and errors that must not stop the daemon."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcelld import database
from toolcelld import store as store_module
from toolcelld.store import DESCRIPTION_BYTES_MAX, DESCRIPTIONS_MAX, WAITING_MAX, Store

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(path: Path, clock: Clock | None = None) -> AsyncGenerator[Store]:
    store = Store(str(path), now=clock or Clock())
    await store.start()
    try:
        yield store
    finally:
        await store.aclose()


@contextmanager
def store_paused(store: Store) -> Generator[None]:
    """Block the thread, as a hanging disk does, so that writes are queued in one batch."""
    go_on = threading.Event()
    store._thread.submit(go_on.wait)  # pyright: ignore[reportPrivateUsage]  # a disk cannot be hung from outside
    try:
        yield
    finally:
        go_on.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "toolcell.db"


async def test_a_description_can_be_read_after_a_restart(path: Path) -> None:
    async with opened(path) as store:
        store.put("a", b"first")
        store.put("b", b"second")
    async with opened(path) as store:
        assert store.durable
        assert await store.get_many(["a", "b", "c"]) == {"a": b"first", "b": b"second"}


async def test_a_read_sees_every_write_before_it(path: Path) -> None:
    async with opened(path) as store:
        for number in range(300):
            store.put("same", b"%d" % number)
            if number % 100 == 0:
                assert await store.get_many(["same"]) == {"same": b"%d" % number}
        assert await store.get_many(["same"]) == {"same": b"299"}


async def test_the_least_recently_used_descriptions_are_evicted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DESCRIPTIONS_MAX", 3)
    clock = Clock()
    async with opened(path, clock) as store:
        for digest in "abc":
            store.put(digest, b"")
            clock.now += 3601
        assert set(await store.get_many(["a"])) == {"a"}  # used, hence newer than b
        clock.now += 1
        store.put("d", b"")
        assert set(await store.get_many("abcd")) == {"a", "c", "d"}


async def test_a_thousand_descriptions_are_read_at_once(path: Path) -> None:
    async with opened(path) as store:
        for number in range(1000):
            store.put(f"{number}", b"x" * 2000)
        assert len(await store.get_many(f"{number}" for number in range(1000))) == 1000
    assert DESCRIPTIONS_MAX > 1000


async def test_a_description_over_the_bound_is_not_cached(path: Path) -> None:
    async with opened(path) as store:
        store.put("large", b"x" * (DESCRIPTION_BYTES_MAX + 1))
        assert await store.get_many(["large"]) == {}


async def test_only_the_user_can_read_the_database(path: Path, generous_umask: None) -> None:
    async with opened(path) as store:
        store.put("a", b"")
        await store.flush()
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_two_daemons_share_the_database(path: Path) -> None:
    async with opened(path) as one, opened(path) as other:
        for number in range(50):
            one.put(f"one {number}", b"")
            other.put(f"other {number}", b"")
        await one.flush()
        await other.flush()
        assert await one.read("SELECT count(*) FROM descriptions") == [(100,)]


@pytest.mark.parametrize(
    "junk",
    [
        b"this is no database, but it is long enough to be looked at" * 100,
        b"SQLite format 3\0" + b"\xff" * 8000,
    ],
)
async def test_a_damaged_database_is_renamed_and_replaced(
    path: Path, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(junk)
    async with opened(path) as store:
        assert store.durable
        store.put("a", b"kept")
        assert await store.get_many(["a"]) == {"a": b"kept"}
    assert path.with_name("toolcell.db.damaged").read_bytes() == junk
    assert "is damaged" in caplog.text


async def test_a_damaged_page_in_the_middle_is_detected_at_the_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        for number in range(200):
            store.put(f"{number}", os.urandom(3000))
    with path.open("r+b") as file:
        for page in range(2, 40):
            file.seek(page * 4096)
            file.write(b"\xa5" * 64)
    async with opened(path) as store:
        assert store.durable
        assert await store.get_many(["1"]) == {}
    assert "is damaged" in caplog.text


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE trust", "ALTER TABLE trust ADD COLUMN more TEXT", "PRAGMA user_version = 1"],
    ids=["a table is gone", "a column is new", "its version is too low"],
)
async def test_a_database_with_other_tables_is_set_aside(path: Path, change: str) -> None:
    async with opened(path) as store:
        assert store.notices == ()
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    async with opened(path) as store:
        assert store.durable
        assert await store.commit("INSERT INTO trust VALUES ('/p', '{}', 0)")
        (notice,) = store.notices
        assert f"set aside as {path}.damaged; decisions of trust" in notice.text
        assert "toolcell trust DIR" in notice.remedy
    async with opened(path) as store:
        assert len(store.notices) == 1  # until its user has seen it
    path.with_name("toolcell.db.damaged").unlink()
    async with opened(path) as store:
        assert store.notices == ()


async def test_an_earlier_damaged_database_is_kept(path: Path) -> None:
    path.parent.mkdir()
    for number in range(3):
        path.write_bytes(b"junk %d" % number * 1000)
        async with opened(path):
            pass
        path.unlink()
    kept = [path.with_name(f"toolcell.db.damaged{suffix}") for suffix in ("", "-2", "-3")]
    assert [each.read_bytes()[:6] for each in kept] == [b"junk 0", b"junk 1", b"junk 2"]


async def test_a_database_that_cannot_be_written_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as store:
        await store.commit("INSERT INTO trust VALUES ('/p', '{}', 0)")

    def read_only(*_: object) -> sqlite3.Connection:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(database, "open_file", read_only)
    async with opened(path) as store:
        assert not store.durable
        assert await store.read("SELECT directory FROM trust") == [("/p",)]
        (notice,) = store.notices
        assert "Read-only file system" in notice.text
        assert "end with the daemon; those that were made before hold." in notice.text


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(junk=st.binary(max_size=6000), header=st.booleans())
async def test_no_file_keeps_the_store_from_starting(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, header: bool
) -> None:
    path = tmp_path_factory.mktemp("junk") / "toolcell.db"
    path.write_bytes((b"SQLite format 3\0" if header else b"") + junk)
    async with opened(path) as store:
        store.put("a", b"kept")
        assert await store.get_many(["a"]) == {"a": b"kept"}


async def test_a_database_that_cannot_be_opened_is_replaced_by_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    async with opened(tmp_path / "state" / "toolcell.db") as store:
        assert not store.durable
        store.put("a", b"kept")
        assert await store.get_many(["a"]) == {"a": b"kept"}
    assert "cannot be used" in caplog.text


async def test_the_database_of_a_later_version_is_not_changed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path):
        pass
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    async with opened(path) as store:
        assert not store.durable
        store.put("a", b"kept")
        assert await store.get_many(["a"]) == {"a": b"kept"}
    assert path.read_bytes() == before
    assert "it has schema 99" in store.notices[0].text
    assert "it has schema 99" in caplog.text


async def test_a_full_disk_loses_records_and_logs_it_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        [(pages,)] = await store.read("PRAGMA page_count")
        await store.read(f"PRAGMA max_page_count = {pages}")
        for number in range(20):
            store.put(f"{number}", b"x" * 100_000)
            await store.flush()
        assert not await store.commit("INSERT INTO descriptions VALUES ('b', zeroblob(100000), 0)")
        (notice,) = store.notices
        assert "cannot be written: database or disk is full. New decisions of trust end" in notice.text
        assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
        await store.read("PRAGMA max_page_count = 1000000")
        store.put("a", b"kept")
        assert await store.get_many(["a"]) == {"a": b"kept"}
        assert "is writable again" in caplog.text
        assert store.notices == ()


async def test_an_invalid_write_does_not_lose_the_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        with store_paused(store):
            store.put("before", b"")
            store.write("INSERT INTO descriptions VALUES ('null', NULL, 0)")
            store.write("INSERT INTO descriptions VALUES (?, '', 0)", ["\ud800"])
            store.put("after", b"")
        assert set(await store.get_many(["before", "null", "after"])) == {"before", "after"}


async def test_queued_writes_are_bounded_while_the_disk_hangs(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        with store_paused(store):
            for number in range(WAITING_MAX + 7):
                store.write("INSERT INTO descriptions VALUES (?, x'', 0)", [f"{number}"])
        assert await store.read("SELECT count(*) FROM descriptions") == [(WAITING_MAX,)]
        assert "7 records were lost" in caplog.text


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def warnings_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolcelld")
