"""The persistent state of the daemon: one SQLite database, used on one thread.

The loop never accesses the disk. `write` queues a statement, and the thread commits all queued statements in one
transaction, so that a burst needs one commit and a single write does not wait. Reads use the same thread in the same
order, so a read sees every earlier write, without a second connection or a lock on the data.

A database error never stops the daemon. A damaged database, or one without our tables, is set aside under another name and
a new one is created; one that cannot be opened is replaced by one in memory, with what can be read of it; writes that a full
or busy disk refuses are lost, with a warning. `notices` says what is lost by it, as users decided some of it: whom they
trust. Several daemons may share the file: it uses WAL, a busy time-out, and a file lock while it is opened (`database`).

`output.spill` writes the rows of outputs; the cache of descriptions is part of this module.

`aiosqlite` is not used, because it hands over each statement to its thread: a transaction of n writes takes n + 2
switches instead of one, and a read or a cancellation can interrupt it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from toolcelld import database

logger = logging.getLogger(__name__)

Value: TypeAlias = str | bytes | int | float | None
T = TypeVar("T")

# See `database.Schema`.
SCHEMA = (
    """
    CREATE TABLE outputs (
        handle TEXT PRIMARY KEY,        -- also the name of its file
        session_id TEXT NOT NULL,
        secret_digest BLOB NOT NULL,    -- of the session's resume token; the token itself is nowhere on disk
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        source TEXT NOT NULL,           -- result, stdout, stderr
        total_bytes INTEGER NOT NULL,
        kept_bytes INTEGER NOT NULL,
        total_lines INTEGER NOT NULL,
        complete INTEGER NOT NULL,
        created REAL NOT NULL,
        expires REAL                    -- NULL: kept until the quota wants its room
    ) STRICT;
    CREATE INDEX outputs_by_age ON outputs (created);
    CREATE TABLE descriptions (
        digest TEXT PRIMARY KEY,
        description BLOB NOT NULL,
        used_at REAL NOT NULL
    ) STRICT;
    CREATE INDEX descriptions_by_use ON descriptions (used_at);
    """,
    """
    CREATE TABLE trust (
        directory TEXT PRIMARY KEY,     -- of the project, resolved
        terms TEXT NOT NULL,            -- JSON: what its tools may get, and the code that is meant
        granted REAL NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE kept (
        kind TEXT NOT NULL,             -- environment, packages
        name TEXT NOT NULL,             -- of the directory
        source TEXT NOT NULL,           -- the tool file, or the directory of package.json, that asked for it
        digest TEXT NOT NULL,           -- of what the tool file said; empty for packages
        used_at REAL NOT NULL,
        PRIMARY KEY (kind, name, source)
    ) STRICT;
    """,
    """
    CREATE TABLE disabled (
        tool TEXT PRIMARY KEY,
        reason TEXT NOT NULL,           -- of the person, for display
        since REAL NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE promises (
        path TEXT NOT NULL,             -- of the entry of an MCP server
        project TEXT NOT NULL,          -- that its process is for; empty for none
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,           -- of what the tool said of itself when it was accepted
        text TEXT NOT NULL,             -- the same, cut, for display
        accepted REAL NOT NULL,
        PRIMARY KEY (path, project, tool)
    ) STRICT;
    CREATE INDEX promises_by_age ON promises (accepted);
    """,
)

# Writes that may be queued for the thread, of about a kilobyte each; more only if the disk does not respond.
WAITING_MAX = 10_000
# Files whose description is cached: four times the thousand that a session must open quickly.
DESCRIPTIONS_MAX = 4096
# Descriptions have a few kilobytes; larger ones are not cached. With the limit above, at most 1 GiB.
DESCRIPTION_BYTES_MAX = 256 * 1024
# The last use is updated at most hourly, so that opening a session with a thousand files does not write a thousand rows.
_USE_SECONDS = 3600.0


class Notice(NamedTuple):
    """What a user has to know of the database."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _Write:
    sql: str
    parameters: Sequence[Value]


class Store:
    """The database; call `start` before anything else and `aclose` at the end.

    Args:
        path: The file, which is created with its directory where it does not exist.
        now: Returns the time in seconds since the epoch.
    """

    def __init__(self, path: str, *, now: Callable[[], float] = time.time) -> None:
        self.path = path
        # Whether records are on disk; False if the file cannot be used.
        self.durable = False
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        # Used on the thread only.
        self._database: sqlite3.Connection | None = None
        # Shared between the callers and the thread, under the lock.
        self._lock = threading.Lock()
        self._pending: list[_Write] = []
        self._lost = 0
        self._unusable = ""  # why it is not used
        self._copied = ""  # that its records were copied into memory then
        self._unwritten = ""  # why records are lost now
        self._aside: tuple[str, ...] = ()  # the damaged ones, until the user removes them

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What is lost or cannot be kept, and what to do; empty where all is well. Looks at no disk."""
        found = [
            Notice(
                f"The database was damaged and is set aside as {path}; decisions of trust and of disabled tools that were in it are not known.",
                f"Give them again, toolcell trust DIR or toolcell disable TOOL, and remove that file and {path}-*",
            )
            for path in self._aside
        ]
        if self._unusable:
            text = f"{self.path} cannot be used: {self._unusable}. New decisions of trust end with the daemon"
            found.append(Notice(f"{text}{self._copied}.", "Mend that, then: toolcell stop"))
        elif self._unwritten:
            text = f"{self.path} cannot be written: {self._unwritten}. New decisions of trust end with the daemon."
            found.append(Notice(text, "Make room, or mend the file system"))
        return tuple(found)

    async def start(self) -> None:
        """Open the database; if that fails, use one in memory."""
        await self._run(self._open)

    async def aclose(self) -> None:
        """Commit queued statements and close. Nothing may be written afterwards."""
        await self._run(self._close)
        self._thread.shutdown()

    async def read(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, which sees every earlier write. An error is logged, and returns no rows."""
        return await self._run(self._read, sql, parameters)

    def write(self, sql: str, parameters: Sequence[Value] = ()) -> None:
        """Queue a statement and return at once; a failure is logged, not raised."""
        with self._lock:
            if len(self._pending) >= WAITING_MAX:
                self._lost += 1
                return
            self._pending.append(_Write(sql, parameters))
            only_one = len(self._pending) == 1
        if only_one:
            self._thread.submit(self._commit_waiting)

    async def commit(self, sql: str, parameters: Sequence[Value] = ()) -> bool:
        """Commit a statement now, after all earlier writes; return whether it succeeded."""
        return await self._run(self._commit, [_Write(sql, parameters)])

    async def flush(self) -> None:
        """Wait until every write before this has been committed or lost."""
        await self._run(self._commit_waiting)

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the cached descriptions, by the digest of their source."""
        digest_list = json.dumps(list(digests))
        rows = await self.read(
            "SELECT digest, description FROM descriptions WHERE digest IN (SELECT value FROM json_each(?))",
            [digest_list],
        )
        if rows:
            now = self._now()
            self.write(
                "UPDATE descriptions SET used_at = ? WHERE used_at < ? AND digest IN (SELECT value FROM json_each(?))",
                [now, now - _USE_SECONDS, digest_list],
            )
        return dict(rows)

    def put(self, digest: str, description: bytes) -> None:
        """Cache a description, unless it is over `DESCRIPTION_BYTES_MAX`; the least recently used ones are evicted."""
        if len(description) > DESCRIPTION_BYTES_MAX:
            return
        self.write("INSERT OR REPLACE INTO descriptions VALUES (?, ?, ?)", [digest, description, self._now()])
        self.write(
            "DELETE FROM descriptions WHERE rowid IN"
            " (SELECT rowid FROM descriptions ORDER BY used_at DESC, rowid DESC LIMIT -1 OFFSET ?)",
            [DESCRIPTIONS_MAX],
        )

    # The methods below run on the thread.

    def _open(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._database = database.open_file(self.path, SCHEMA)
            self.durable = True
        except (sqlite3.Error, OSError, database.DamagedError, database.NewerError) as error:
            logger.warning(
                "%s cannot be used: %s. Outputs and descriptions are kept until the daemon ends.",
                self.path,
                error,
            )
            self._unusable = str(error)
            self._database = sqlite3.connect(":memory:", isolation_level=None)
            if not isinstance(error, database.NewerError | database.DamagedError) and database.copied(
                self.path, self._database, SCHEMA
            ):
                self._copied = "; those that were made before hold"
            database.migrate(self._database, SCHEMA)
        self._aside = tuple(path for path in database.names_aside(self.path) if os.path.exists(path))

    def _close(self) -> None:
        self._commit_waiting()
        if self._database is not None:
            self._database.close()
            self._database = None

    def _read(self, sql: str, parameters: Sequence[Value]) -> list[tuple[Any, ...]]:
        assert self._database is not None, "the store is not open"
        try:
            return self._database.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            logger.warning("%s cannot be read: %s.", self.path, error)
            return []

    def _commit_waiting(self) -> None:
        with self._lock:
            batch, self._pending = self._pending, []
        if batch:
            self._commit(batch)

    def _commit(self, batch: list[_Write]) -> bool:
        assert self._database is not None, "the store is not open"
        try:
            with self._database as open_database:
                open_database.execute("BEGIN IMMEDIATE")
                for write in batch:
                    open_database.execute(write.sql, write.parameters)
        except sqlite3.OperationalError as error:
            return self._drop(batch, error)  # a disk error: retrying each write alone would only wait again
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if len(batch) == 1:
                return self._drop(batch, error)
            for write in batch:  # one invalid write must not lose the others
                self._commit([write])
            return False
        with self._lock:
            lost, self._lost = self._lost, 0
            self._unwritten = ""
        if lost:
            logger.warning("%s is writable again; %d records were lost.", self.path, lost)
        return True

    def _drop(self, batch: list[_Write], error: Exception) -> bool:
        with self._lock:
            first = not self._lost
            self._lost += len(batch)
            self._unwritten = str(error)
        if first:  # once, so that a full disk does not fill the log
            logger.warning("%s cannot be written, records are lost: %s.", self.path, error)
        return False

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
