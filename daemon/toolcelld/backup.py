"""`python -m toolcelld.backup save|restore FILE STATE`: the databases of a state directory, in one file and back.

A backup is a tar archive of a manifest and the databases, each copied by SQLite's own backup, so that a daemon may run
and write meanwhile. Prints one JSON object; `toolcell backup` and `restore` show it.

A backup that is restored may come from anywhere: nothing of it is unpacked by its own names, sizes are bounded before
anything is read, and no database takes its place before all were checked. What it says about trust then holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any, Final, cast

import toolcelld
from toolcelld import database, store
from toolcelld.database import Schema
from toolcelld.records import tables

SCHEMAS: Final[Mapping[str, Schema]] = {
    "toolcell.sqlite": store.SCHEMA,
    "records.sqlite": tables.SCHEMA,
}
MANIFEST: Final = "manifest.json"
KIND: Final = "toolcell backup"
VERSION: Final = 1
MANIFEST_BYTES_MAX: Final = 64 * 1024
DATABASE_BYTES_MAX: Final = 8 * 2**30
"""Sixteen times what the records take by default."""
BLOCK_BYTES: Final = 2**20


class BackupError(Exception):
    """What keeps a backup from being made or restored, in one sentence."""


def save(path: str, state: str, *, force: bool) -> dict[str, Any]:
    """Write the databases of a state directory to a file of mode 0600. Raises `BackupError`.

    Args:
        path: The file.
        state: The state directory.
        force: Whether a file that is there is replaced.
    """
    if not force and os.path.lexists(path):
        raise BackupError(f"{path} is there already; name another, or replace it with --force")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix=".toolcell-backup-") as place:
        found = {name: _copied(state, name, place) for name in SCHEMAS if os.path.exists(f"{state}/{name}")}
        if "toolcell.sqlite" not in found:
            raise BackupError(f"{state} has no toolcell.sqlite; there is nothing to save")
        manifest: dict[str, Any] = {"kind": KIND, "version": VERSION, "toolcell": toolcelld.version()}
        manifest |= {"created": time.time(), "files": found}
        with open(f"{place}/{MANIFEST}", "w") as file:
            json.dump(manifest, file)
        whole = f"{place}/whole"
        with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name in (MANIFEST, *found):
                    archive.add(f"{place}/{name}", name, filter=_anonymous)
            target.flush()
            os.fsync(target.fileno())
            size = target.tell()
        if force:
            os.replace(whole, path)
        else:
            os.link(whole, path)  # which fails where a file was made meanwhile
    return {"file": path, "bytes": size, "databases": sorted(found)}


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _copied(state: str, name: str, place: str) -> dict[str, Any]:
    """Copy a database that may be written to meanwhile, and describe the copy."""
    path = f"{place}/{name}"
    with (
        contextlib.closing(sqlite3.connect(f"{state}/{name}", timeout=database.BUSY_SECONDS)) as source,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        version = database.check(copy, SCHEMAS[name])
    return {"schema": version, "bytes": os.path.getsize(path), "sha256": _digest(path)}


def restore(path: str, state: str, *, force: bool) -> dict[str, Any]:
    """Put the databases of a backup into a state directory that no daemon uses. Raises `BackupError`.

    Args:
        path: The backup.
        state: The state directory, which is made if it is not there.
        force: Whether databases that are there are renamed and replaced.
    """
    os.makedirs(state, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state, prefix=".restore-") as place, contextlib.ExitStack() as locks:
        names = _unpacked(path, place)
        there = [name for name in SCHEMAS if os.path.lexists(f"{state}/{name}")]
        for name in SCHEMAS:
            locks.enter_context(database.locked(f"{state}/{name}"))
        for name in there:
            _check_unused(f"{state}/{name}")
        if there and not force:
            raise BackupError(
                f"{state} has {' and '.join(there)}; replace it with --force, which keeps the old"
            )
        for name in SCHEMAS:
            for suffix in ("", "-wal", "-shm"):  # a log that is left would be played into the new one
                if os.path.lexists(f"{state}/{name}{suffix}"):
                    os.replace(f"{state}/{name}{suffix}", f"{state}/{name}.before-restore{suffix}")
        for name in names:
            os.replace(f"{place}/{name}", f"{state}/{name}")
    return {"state": state, "databases": names, "replaced": there}


def _check_unused(path: str) -> None:
    """Raise `BackupError` where a process has a database open; what its log has is in the file then."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as found:
            mode = found.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
    except sqlite3.OperationalError:
        mode = "in use"
    except sqlite3.DatabaseError:
        return  # it is damaged, which is why another one is restored
    if mode != "delete":
        raise BackupError(f"a daemon uses {path}; end it first: toolcell stop")


def _unpacked(path: str, place: str) -> list[str]:
    """Copy the databases of a backup to a directory, checked, and return their names."""
    try:
        with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            return _of_archive(path, archive, place)
    except (tarfile.TarError, EOFError, UnicodeError, OverflowError) as error:
        raise BackupError(f"{path} is no backup: {error}") from error


def _of_archive(path: str, archive: tarfile.TarFile, place: str) -> list[str]:
    manifest: dict[str, Any] | None = None
    names: list[str] = []
    for number, member in enumerate(archive):
        known = member.name in SCHEMAS if number else member.name == MANIFEST
        if not known or not member.isreg() or member.name in names or member.issparse():
            raise BackupError(f"{path} is no backup: it has something that no backup has")
        content = archive.extractfile(member)
        assert content is not None
        if manifest is None:
            manifest = _manifest(path, content.read(MANIFEST_BYTES_MAX + 1))
            continue
        said = manifest["files"].get(member.name)
        if said is None or member.size != said["bytes"] or member.size > DATABASE_BYTES_MAX:
            raise BackupError(f"{path} is damaged: {member.name} is not what its manifest says")
        _write(content, f"{place}/{member.name}", member.size)
        _check(path, f"{place}/{member.name}", member.name, said)
        names.append(member.name)
    if manifest is None or "toolcell.sqlite" not in names or {*names} != {*manifest["files"]}:
        raise BackupError(f"{path} is damaged: it does not have what its manifest says")
    return names


def _manifest(path: str, raw: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(raw)
        if found["kind"] != KIND:
            raise ValueError
        if found["version"] != VERSION:
            raise BackupError(
                f"{path} was made by another version of Toolcell, {str(found['toolcell'])[:20]!r}"
            )
        files = cast("dict[str, Any]", found["files"])
        if any(not isinstance(said["bytes"], int) or not said["sha256"] for said in files.values()):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupError(f"{path} is no backup: its manifest cannot be read") from error
    return cast("dict[str, Any]", found)


def _write(content: IO[bytes], path: str, size: int) -> None:
    if size > shutil.disk_usage(os.path.dirname(path)).free:
        raise BackupError(f"there is no room for {size} bytes in {os.path.dirname(os.path.dirname(path))}")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, BLOCK_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _check(path: str, copy: str, name: str, said: Mapping[str, Any]) -> None:
    if _digest(copy) != said["sha256"]:
        raise BackupError(f"{path} is damaged: {name} has another digest than its manifest says")
    try:
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as found:
            database.check(found, SCHEMAS[name])
    except (sqlite3.Error, database.DamagedError, database.NewerError) as error:
        raise BackupError(f"{path} cannot be used: {name}: {error}") from error


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Do what the words say, and print how it went."""
    verb, path, state, *flags = sys.argv[1:]
    try:
        done = (save if verb == "save" else restore)(path, state, force=bool(flags))
    except BackupError as error:
        done = {"error": str(error)}
    except (OSError, sqlite3.Error, database.DamagedError, database.NewerError) as error:
        done = {"error": f"{path}: {error}"}
    print(json.dumps(done))


if __name__ == "__main__":
    main()
