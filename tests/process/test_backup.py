"""`toolcell backup` and `restore`: saved under load, restored elsewhere, and nothing that is no backup."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn, TypeAlias

import pytest

from toolcelld import backup, database
from toolcelld.backup import MANIFEST, SCHEMAS, BackupError, restore, save


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a trusted project."""
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    for name, schema in SCHEMAS.items():
        with closing(database.open_file(str(place / name), schema)) as found:
            if name == "toolcell.sqlite":
                found.execute("INSERT INTO trust VALUES ('/p', '{}', 1.0)")
    return place


@pytest.fixture
def saved(state: Path, tmp_path: Path) -> Path:
    save(str(tmp_path / "saved.tar"), str(state), force=False)
    return tmp_path / "saved.tar"


def trusted(state: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(state / "toolcell.sqlite")) as found:
        return found.execute("SELECT directory FROM trust ORDER BY directory").fetchall()


def test_what_was_saved_is_restored_with_its_mode(saved: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert restore(str(saved), str(tmp_path / "new"), force=False)["databases"] == [*SCHEMAS]
    assert trusted(tmp_path / "new") == [("/p",)]
    for name in SCHEMAS:
        assert stat.S_IMODE((tmp_path / "new" / name).stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"state", "saved.tar", "new"}


def test_nothing_is_replaced_without_the_flag(saved: Path, state: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(BackupError, match="is there already"):
        save(str(saved), str(state), force=False)
    assert saved.read_bytes() == before
    with pytest.raises(BackupError, match="replace it with --force"):
        restore(str(saved), str(state), force=False)
    with closing(sqlite3.connect(state / "toolcell.sqlite")) as found:
        found.execute("INSERT INTO trust VALUES ('/later', '{}', 1.0)")
        found.commit()
    assert restore(str(saved), str(state), force=True)["replaced"] == [*SCHEMAS]
    assert trusted(state) == [("/p",)]
    assert (state / "toolcell.sqlite.before-restore").exists()


def test_a_file_that_was_made_meanwhile_is_not_replaced(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(source: str, target: str) -> NoReturn:
        Path(target).write_text("mine")
        link(source, target)
        raise AssertionError

    link = os.link
    monkeypatch.setattr(os, "link", made)
    with pytest.raises(FileExistsError):
        save(str(tmp_path / "saved.tar"), str(state), force=False)
    assert (tmp_path / "saved.tar").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"state", "saved.tar"}


def test_where_there_is_nothing_to_save_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(BackupError, match="there is nothing to save"):
        save(str(tmp_path / "saved.tar"), str(tmp_path / "state"), force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_backup_says_nothing_of_who_has_made_it(saved: Path) -> None:
    with tarfile.open(saved) as archive:
        told = {(each.uid, each.gid, each.uname, each.gname, each.mode) for each in archive}
    assert told == {(0, 0, "", "", 0o600)}


def test_what_only_the_log_of_a_database_has_is_saved_too(state: Path, tmp_path: Path) -> None:
    with closing(database.open_file(str(state / "toolcell.sqlite"), SCHEMAS["toolcell.sqlite"])) as daemon:
        daemon.execute("INSERT INTO trust VALUES ('/q', '{}', 1.0)")
        save(str(tmp_path / "saved.tar"), str(state), force=False)
    restore(str(tmp_path / "saved.tar"), str(tmp_path / "new"), force=False)
    assert trusted(tmp_path / "new") == [("/p",), ("/q",)]


def test_no_daemon_opens_a_database_while_it_is_replaced(
    saved: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[str] = []
    replaced: list[list[str]] = []

    def lock(descriptor: int, how: int) -> None:
        assert how == fcntl.LOCK_EX
        locked.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    def replace(source: str, target: str) -> None:
        replaced.append([*locked])
        rename(source, target)

    rename = os.replace
    monkeypatch.setattr(fcntl, "flock", lock)
    monkeypatch.setattr(os, "replace", replace)
    restore(str(saved), str(state), force=True)
    assert replaced
    assert all(each == [f"{name}.lock" for name in SCHEMAS] for each in replaced)


def test_a_copy_is_whole_while_others_write(state: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(state / "toolcell.sqlite", timeout=30, isolation_level=None)) as found:
            for number in range(10_000):
                if stop.is_set():
                    return
                found.execute("BEGIN IMMEDIATE")  # two rows, both or none
                for half in "ab":
                    row = [f"/{number}/{half}"]
                    found.execute("INSERT INTO trust VALUES (?, '{}', 1.0)", row)
                found.execute("COMMIT")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            save(str(tmp_path / f"{number}.tar"), str(state), force=False)
    finally:
        stop.set()
        writer.join()
    for number in range(5):
        restore(str(tmp_path / f"{number}.tar"), str(tmp_path / f"state{number}"), force=False)
        rows = [row for (row,) in trusted(tmp_path / f"state{number}") if row != "/p"]
        assert len(rows) % 2 == 0


def test_a_directory_that_is_in_use_is_left_alone(saved: Path, state: Path) -> None:
    with (
        closing(database.open_file(str(state / "toolcell.sqlite"), SCHEMAS["toolcell.sqlite"])),
        pytest.raises(BackupError, match="end it first: toolcell stop"),
    ):
        restore(str(saved), str(state), force=True)
    assert not (state / "toolcell.sqlite.before-restore").exists()


def test_a_damaged_database_is_replaced_with_the_log_that_it_left(saved: Path, state: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (state / f"toolcell.sqlite{suffix}").write_bytes(b"garbage " * 1000)
    restore(str(saved), str(state), force=True)
    assert trusted(state) == [("/p",)]


def test_the_log_of_a_database_that_has_gone_is_not_played_into_the_new_one(saved: Path, state: Path) -> None:
    path = state / "toolcell.sqlite"
    with closing(database.open_file(str(path), SCHEMAS["toolcell.sqlite"])) as daemon:
        daemon.execute("INSERT INTO trust VALUES ('/evil', '{}', 1.0)")
        log = path.with_name("toolcell.sqlite-wal").read_bytes()
    path.unlink()
    path.with_name("toolcell.sqlite-wal").write_bytes(log)
    restore(str(saved), str(state), force=True)
    assert not path.with_name("toolcell.sqlite-wal").exists()
    assert path.with_name("toolcell.sqlite.before-restore-wal").read_bytes() == log
    assert trusted(state) == [("/p",)]


def members(saved: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(saved) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            yield member, content.read()


Found: TypeAlias = list[tuple[tarfile.TarInfo, bytes]]
Change: TypeAlias = Callable[[Found], None]


def removed(*numbers: int) -> Change:
    def change(found: Found) -> None:
        found[:] = [each for number, each in enumerate(found) if number not in numbers]

    return change


def added(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Change:
    def change(found: Found) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        found.insert(1, (member, b""))

    return change


def listed(name: str) -> Change:
    """Add a database under a name, which the manifest has too."""

    def change(found: Found) -> None:
        manifest = json.loads(found[0][1])
        manifest["files"][name] = manifest["files"]["toolcell.sqlite"]
        found[0] = (found[0][0], json.dumps(manifest).encode())
        found.append((tarfile.TarInfo(name), found[1][1]))

    return change


def written(number: int, content: Callable[[bytes], bytes]) -> Change:
    def change(found: Found) -> None:
        member, before = found[number]
        found[number] = (member, content(before))

    return change


def records_alone(found: Found) -> None:
    manifest = json.loads(found[0][1])
    del manifest["files"]["toolcell.sqlite"]
    found[:2] = [(found[0][0], json.dumps(manifest).encode())]


def twice(found: Found) -> None:
    found.append(found[1])


def changed(saved: Path, change: Change) -> Path:
    found = [*members(saved)]
    change(found)
    path = saved.with_name("changed.tar")
    with tarfile.open(path, "w") as archive:
        for member, content in found:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def with_manifest(**said: object) -> Change:
    def change(found: Found) -> None:
        found[0] = (found[0][0], json.dumps(json.loads(found[0][1]) | said).encode())

    return change


def hostile(sql: str) -> Change:
    """Change a database, with its digest."""

    def change(found: Found) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(found[1][1])
            file.flush()
            with closing(sqlite3.connect(file.name, isolation_level=None)) as changed:
                changed.execute(sql)
            content = Path(file.name).read_bytes()
        manifest = json.loads(found[0][1])
        said = manifest["files"]["toolcell.sqlite"]
        said |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        found[:2] = [(found[0][0], json.dumps(manifest).encode()), (found[1][0], content)]

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(removed(0, 1, 2), id="empty"),
        pytest.param(removed(0), id="no manifest"),
        pytest.param(removed(1), id="no database"),
        pytest.param(removed(2), id="one is missing"),
        pytest.param(twice, id="twice"),
        pytest.param(records_alone, id="records alone"),
        pytest.param(added("../../evil"), id="outside"),
        pytest.param(added("/etc/evil"), id="absolute"),
        pytest.param(listed("../../evil"), id="outside and listed"),
        pytest.param(listed("another.sqlite"), id="another and listed"),
        pytest.param(added("toolcell.sqlite", tarfile.SYMTYPE, "/etc/passwd"), id="link"),
        pytest.param(added("toolcell.sqlite", tarfile.LNKTYPE, MANIFEST), id="hard link"),
        pytest.param(added("toolcell.sqlite", tarfile.FIFOTYPE), id="FIFO"),
        pytest.param(written(1, lambda content: content[:-1] + b"x"), id="other bytes"),
        pytest.param(written(1, lambda _: b""), id="other size"),
        pytest.param(written(0, lambda _: b"[" * 60_000), id="deep manifest"),
        pytest.param(written(0, lambda content: b" " * 2**20 + content), id="long manifest"),
        pytest.param(with_manifest(version=2), id="version"),
        pytest.param(with_manifest(kind="x"), id="kind"),
        pytest.param(with_manifest(files=[]), id="files"),
        pytest.param(hostile("PRAGMA user_version = 99"), id="newer schema"),
        pytest.param(hostile("PRAGMA user_version = -3"), id="no schema"),
        pytest.param(hostile("DROP TABLE trust"), id="a table is missing"),
        pytest.param(
            hostile("CREATE TRIGGER x AFTER INSERT ON disabled BEGIN DELETE FROM disabled; END"), id="trigger"
        ),
        pytest.param(hostile("CREATE VIEW x AS SELECT 1"), id="view"),
    ],
)
def test_what_is_no_backup_changes_nothing(saved: Path, tmp_path: Path, change: Change) -> None:
    with pytest.raises(BackupError):
        restore(str(changed(saved, change)), str(tmp_path / "new"), force=True)
    assert [path.name for path in (tmp_path / "new").iterdir() if path.suffix != ".lock"] == []


def test_a_backup_for_which_there_is_no_room_is_not_unpacked(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=100)

    def usage(_: str) -> object:
        return full

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(BackupError, match="there is no room"):
        restore(str(saved), str(tmp_path / "new"), force=True)


def test_a_database_beyond_the_bound_is_not_read(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "DATABASE_BYTES_MAX", 4096)
    with pytest.raises(BackupError, match="is damaged"):
        restore(str(saved), str(tmp_path / "new"), force=True)


@pytest.mark.parametrize("content", [b"", b"x" * 2000, b"\x1f\x8b" + b"x" * 600, os.urandom(3000)])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(BackupError):
        restore(str(tmp_path / "x.tar"), str(tmp_path / "new"), force=True)
