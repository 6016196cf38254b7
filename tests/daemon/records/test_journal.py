"""What was accepted since the last batch, when the daemon is killed before the next one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, cast

import pytest
from tests.daemon.records.kept import NOW, accepted, ended, put, recording

from toolcelld.calls.outcomes.history import NO_FILE, CallHistory
from toolcelld.lifecycle import CallState
from toolcelld.records import journal, ledger
from toolcelld.records.journal import Journal, rows_left
from toolcelld.records.ledger import Records
from toolcelld.records.query import CallFilter
from toolcelld.records.rows import text_of
from toolcelld.records.tables import OPEN_COLUMNS

pytestmark = pytest.mark.anyio
ALL: Final = CallFilter()


def killed(records: Records, left: Path) -> None:
    """Put what a daemon leaves, if it is killed now, into another directory."""
    shutil.copytree(os.path.dirname(records.path), left)


async def outcomes(directory: Path) -> dict[str, str]:
    """Return how the calls ended, as the next daemon has it."""
    async with recording(directory) as records:
        found = [each.call for each in await records.calls(ALL, 100)]
    assert len({call.call_id for call in found}) == len(found), "each is recorded once"
    return {call.call_id: str(call.outcome) for call in found}


@asynccontextmanager
async def nothing_commits(records: Records) -> AsyncGenerator[None]:
    """Keep the thread of the records from writing, as a slow disk does."""
    await records.calls(ALL, 1)  # it is open, and idle
    with closing(sqlite3.connect(records.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_call_whose_batch_is_not_committed_is_lost_and_not_forgotten(tmp_path: Path) -> None:
    async with recording(tmp_path / "state") as records, nothing_commits(records):
        put(records, accepted("c-1"), accepted("c-2"), ended("c-2"))
        killed(records, tmp_path / "left")
    assert await outcomes(tmp_path / "left") == {
        "c-1": "internal (daemon_killed)",
        "c-2": "internal (daemon_killed)",
    }
    assert not [*(tmp_path / "left").glob("*accepted-*")], "nobody needs them any more"


async def test_what_is_recorded_is_not_recorded_again(tmp_path: Path) -> None:
    async with recording(tmp_path / "state") as records:
        await records.calls(ALL, 1)
        put(records, accepted("c-1"), accepted("c-2"), ended("c-2"))
        await records.calls(ALL, 1)
        killed(records, tmp_path / "left")
    lines = b"".join(path.read_bytes() for path in (tmp_path / "left").glob("*accepted-*")).splitlines()
    assert len(lines) == 2
    assert await outcomes(tmp_path / "left") == {"c-1": "internal (daemon_killed)", "c-2": "ok"}


async def test_a_call_that_ends_while_its_batch_is_written_is_in_that_batch(tmp_path: Path) -> None:
    """Its summary comes with the next batch, at whose beginning its line goes."""
    call = accepted("c-1")
    call.state = CallState.ENDED
    async with recording(tmp_path / "state") as records:
        await records.calls(ALL, 1)
        put(records, call)
        for _ in range(3):
            await records.calls(ALL, 1)
        killed(records, tmp_path / "left")
    assert await outcomes(tmp_path / "left") == {"c-1": "internal (daemon_killed)"}


async def test_the_files_hold_the_calls_since_the_last_batch_but_one_and_go_with_the_daemon(
    tmp_path: Path,
) -> None:
    async with recording(tmp_path) as records:
        await records.calls(ALL, 1)
        for batch in range(5):
            put(records, *(accepted(f"c-{batch}-{number}") for number in range(10)))
            await records.calls(ALL, 1)
        held = [row[2] for row in rows_left(records.path, records.run)]
        assert sorted(held) == sorted(f"c-4-{number}" for number in range(10))
    assert not [*tmp_path.glob("*accepted-*")]


async def test_a_call_is_recorded_where_nothing_can_be_written_to_the_journal(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        await records.calls(ALL, 1)
        cast("Any", records)._history.journal = NO_FILE
        put(records, accepted("c-1"), ended("c-1"))
        assert [each.call.call_id for each in await records.calls(ALL, 10)] == ["c-1"]


def line(*values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


GOOD: Final = line("s-1", "good", *["x"] * (len(OPEN_COLUMNS) - 4), NOW)
HOSTILE: Final = {
    "torn": GOOD[: len(GOOD) // 2],
    "no JSON": b"\xff\x00{]\n",
    "no list": b"7\n",
    "deep": b"[" * 100_000 + b"\n",
    "too few": line("s-1", "c-1", NOW),
    "no text": line("s-1", {}, *["x"] * (len(OPEN_COLUMNS) - 4), NOW),
    "no time": line("s-1", "c-1", *["x"] * (len(OPEN_COLUMNS) - 4), "now"),
    "empty": b"",
    "one text": json.dumps("s-1").encode() + b"\n",
    "a text of as many characters": json.dumps("x" * (len(OPEN_COLUMNS) - 2) + "1").encode() + b"\n",
    "an object of as many names": json.dumps({str(n): n for n in range(len(OPEN_COLUMNS) - 1)}).encode()
    + b"\n",
    "a large time": line("s-1", "c-1", *["x"] * (len(OPEN_COLUMNS) - 4), 10**400),
    "no finite time": line(*["x"] * (len(OPEN_COLUMNS) - 2), "1e999"),
    "a time in a list of texts": line("s-1", {}, *["x"] * (len(OPEN_COLUMNS) - 4), str(NOW)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_line_of_ours_is_left_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r.accepted-7-1").write_bytes(content)
    (tmp_path / "r.accepted-7-2").write_bytes(GOOD)
    assert [row[:3] for row in rows_left(str(tmp_path / "r"), 7)] == [(7, "s-1", "good")]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(GOOD)
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("make", [_fifo, _link, Path.mkdir], ids=["fifo", "link", "directory"])
def test_what_is_no_file_of_ours_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "r.accepted-7-1")
    assert rows_left(str(tmp_path / "r"), 7) == []
    if make is _fifo:
        os.unlink(tmp_path / "r.accepted-7-1")


def test_no_more_of_a_file_is_read_than_can_have_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BYTES_MAX", 2 * len(GOOD))
    (tmp_path / "r.accepted-7-1").write_bytes(GOOD * 3)
    assert len(rows_left(str(tmp_path / "r"), 7)) == 2


@pytest.mark.parametrize("text", ["a\tb", '"a\\tb"', "a\nb\x00", "\ud800\N{PILE OF POO}"])
def test_a_line_has_its_texts_whatever_is_in_them(tmp_path: Path, text: str) -> None:
    call, history = accepted("c-1"), CallHistory()
    call.request = call.request._replace(agent=text, agent_name=text)
    cast("Any", call.session).directory = text
    history.feed = SimpleQueue()
    with (tmp_path / "r.accepted-7-1").open("wb") as file:
        history.journal = file.fileno()
        history.accept(call)
    shown = text_of(text)
    assert rows_left(str(tmp_path / "r"), 7) == [
        (7, "s-1", "c-1", "echo", "", "", shown, shown, "", "", shown, NOW)
    ]


def test_a_text_that_no_database_takes_is_one_that_it_does(tmp_path: Path) -> None:
    (tmp_path / "r.accepted-7-1").write_bytes(line("s\ud800", "c-1", *["x"] * (len(OPEN_COLUMNS) - 4), NOW))
    ((_, session, *_),) = rows_left(str(tmp_path / "r"), 7)
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT ?", [session]).fetchone() == (session,)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_its_files_are_this_users_alone_and_no_link_is_written_to(tmp_path: Path) -> None:
    path, mask = str(tmp_path / "r"), os.umask(0)
    try:
        Journal(path, 7).close()
    finally:
        os.umask(mask)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.glob("r.accepted-*")} == {0o600}
    before = descriptors()
    (tmp_path / "r.accepted-8-2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Journal(path, 8)
    assert not (tmp_path / "elsewhere").exists()
    assert descriptors() == before, "each batch tries again"


async def test_calls_are_recorded_without_a_journal_and_the_next_batch_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def made(path: str, run: int) -> Journal:
        tried.append(run)
        if len(tried) < 3:
            raise OSError(errno.EMFILE, "too many")
        return Journal(path, run)

    monkeypatch.setattr(ledger, "Journal", made)
    async with recording(tmp_path) as records:
        for number in range(4):
            put(records, accepted(f"c-{number}"), ended(f"c-{number}"))
            assert len(await records.calls(ALL, 10)) == number + 1
        assert len(tried) == 3
        await records.calls(ALL, 10)  # what follows the last batch is done
        put(records, accepted("c-4"))
        # In either of the two files, and in the rows once its batch is written.
        assert "c-4" in [row[2] for row in rows_left(records.path, records.run)]


async def test_files_of_others_that_are_alive_stay(tmp_path: Path) -> None:
    async with recording(tmp_path) as one:
        await one.calls(ALL, 1)
        async with recording(tmp_path) as other:
            put(other, accepted("c-1"))
            await other.calls(ALL, 1)
        put(one, accepted("c-2"))
        await one.calls(ALL, 1)
        assert [row[2] for row in rows_left(one.path, one.run)] == ["c-2"]
