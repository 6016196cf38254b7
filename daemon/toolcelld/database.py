"""SQLite files that hold what survives a restart: opening, migrating, and setting aside damaged ones.

A schema is a sequence of scripts, each of which migrates a database from the version of its index to the next; the
`user_version` of the file is its version. A file whose tables are not as the scripts make them is damaged.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import sqlite3
import urllib.parse
from collections.abc import Generator
from typing import Final, TypeAlias

logger = logging.getLogger(__name__)

Schema: TypeAlias = tuple[str, ...]
"""The scripts, the oldest first."""

BUSY_SECONDS: Final = 5.0
"""Another daemon's commit takes milliseconds; a longer lock is an error."""
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The last one is said of tables that are not as a migration expects them."""
ASIDE_MAX: Final = 9
"""Damaged databases that are kept; the latest one replaces the last of them."""


class DamagedError(Exception):
    """The file is not a database, or a damaged one."""


class NewerError(Exception):
    """The database has the schema of a later version."""


def open_file(path: str, schema: Schema, *, check: bool = True) -> sqlite3.Connection:
    """Open the database at a path; create it where there is none, and set a damaged one aside.

    Args:
        path: The file; its directory is there.
        schema: What it is migrated to.
        check: Whether all of it is read for damage, by default; without, damage is met when its pages are.
    """
    with locked(path):
        try:
            return _connect(path, schema, check=check)
        except DamagedError as error:
            set_aside(path, error)
            return _connect(path, schema, check=check)


@contextlib.contextmanager
def locked(path: str) -> Generator[None]:
    """Hold the lock under which a database is opened: two daemons that start together would rename each other's new file."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def set_aside(path: str, error: Exception) -> None:
    """Rename a damaged database, so that a new one can be created."""
    aside = next((name for name in names_aside(path) if not os.path.lexists(name)), names_aside(path)[-1])
    logger.warning("%s is damaged: %s. It was renamed to %s, and a new one was created.", path, error, aside)
    os.replace(path, aside)
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.replace(path + suffix, aside + suffix)


def _connect(path: str, schema: Schema, *, check: bool) -> sqlite3.Connection:
    # SQLite gives the WAL the same mode
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        if not os.path.getsize(path):  # later it would have no effect but a write
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        # A power failure may lose the last records, but not damage the file.
        database.execute("PRAGMA synchronous = NORMAL")
        if check and (found := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise DamagedError(found)
        return migrate(database, schema)
    except sqlite3.DatabaseError as error:
        database.close()
        if error.sqlite_errorcode & 0xFF in DAMAGED:  # the low byte is the primary code
            raise DamagedError(str(error)) from error
        raise
    except BaseException:
        database.close()
        raise


def migrate(database: sqlite3.Connection, schema: Schema) -> sqlite3.Connection:
    """Run the scripts that the database has not run yet. Raises `NewerError` and `DamagedError`."""
    version = _version(database)
    if version > len(schema):
        raise NewerError(
            f"it has schema {version}, this version knows {len(schema)}; use the newer toolcell or move it away"
        )
    for number, migration in enumerate(schema[version:], version + 1):
        database.executescript(f"BEGIN IMMEDIATE; {migration}; PRAGMA user_version = {number}; COMMIT")
    if other := _other_tables(database, schema):
        raise DamagedError(f"{', '.join(other)} in it is not as schema {len(schema)} has it")
    return database


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


@functools.cache
def _tables_of(schema: Schema) -> dict[str, list[str]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for migration in schema:
            empty.executescript(migration)
        return _tables(empty)


def _tables(database: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the tables with their columns; those of SQLite itself are left out."""
    rows = database.execute(
        "SELECT t.name, c.name FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY t.name, c.cid"
    )
    tables: dict[str, list[str]] = {}
    for table, column in rows:
        tables.setdefault(table, []).append(column)
    return tables


def _other_tables(database: sqlite3.Connection, schema: Schema) -> list[str]:
    """Return the tables that a database lacks, or has with other columns."""
    found = _tables(database)
    return [name for name, columns in _tables_of(schema).items() if found.get(name) != columns]


def check(database: sqlite3.Connection, schema: Schema) -> int:
    """Return the version of a database that is whole, and has what the scripts of that version make and nothing else.

    Raises `NewerError` and `DamagedError`.
    """
    version = _version(database)
    if version > len(schema):
        raise NewerError(f"it has schema {version}, this version knows {len(schema)}; use the newer toolcell")
    if (found := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise DamagedError(found)
    known = schema[: max(version, 0)]
    if _other_tables(database, known) or _objects(database) != _objects_of(known):
        raise DamagedError(f"what is in it is not as schema {version} has it")
    return version


@functools.cache
def _objects_of(schema: Schema) -> frozenset[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for migration in schema:
            empty.executescript(migration)
        return _objects(empty)


def _objects(database: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return the tables, indexes, views and triggers by kind and name; those of SQLite itself are left out."""
    rows = database.execute(
        "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    ).fetchall()
    return frozenset((str(kind), str(name)) for kind, name in rows)


def names_aside(path: str) -> list[str]:
    return [f"{path}.damaged", *(f"{path}.damaged-{number}" for number in range(2, ASIDE_MAX + 1))]


def copied(path: str, database: sqlite3.Connection, schema: Schema) -> bool:
    """Copy what can be read of a database that cannot be written; return whether that succeeded."""
    for mode in (
        "mode=ro",
        "immutable=1",
    ):  # the first needs a file beside it, which a read-only directory cannot get
        uri = f"file:{urllib.parse.quote(path)}?{mode}"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as source,
        ):
            if _version(source) == len(schema) and not _other_tables(source, schema):
                source.backup(database)
                return True
    return False
