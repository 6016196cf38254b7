"""The schema of the records, and what leaves them when they are too old or too many.

Rows are numbered as they are written, so that the oldest have the lowest numbers whatever the clock says, and the number
of rows is known without counting them.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from typing import Final

from toolcelld.config.schema import RecordsSection
from toolcelld.database import Schema

CHUNK_ROWS: Final = 5000
"""Removed in one transaction: the lock is held for some milliseconds."""
BYTES_KEPT: Final = 0.95
"""Of the bound, when something is removed for it, so that not each batch removes something."""

OPEN_COLUMNS: Final = (
    "run", "session_id", "call_id", "tool", "path", "digest", "agent", "agent_name", "agent_session_id", "message_id",
    "directory", "accepted",
)  # fmt: skip
CALL_COLUMNS: Final = (
    *OPEN_COLUMNS, "ended", "worker_id", "outcome", "cause", "message", "queue_seconds", "run_seconds", "cpu_seconds",
    "memory_peak_bytes", "output_bytes", "spilled_bytes", "stop_seconds", "more", "arguments", "arguments_bytes",
    "result", "result_bytes",
)  # fmt: skip

SCHEMA: Final[Schema] = (
    """
    CREATE TABLE runs (                 -- of daemons
        run INTEGER PRIMARY KEY,        -- at random: another daemon may write to the same file
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        started REAL NOT NULL,
        seen REAL NOT NULL,             -- its last batch
        ended REAL                      -- NULL: it runs, or was killed
    ) STRICT;
    CREATE TABLE open_calls (           -- accepted, and not ended at the last batch
        run INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        path TEXT NOT NULL,
        digest TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_name TEXT NOT NULL,
        agent_session_id TEXT NOT NULL,
        message_id TEXT NOT NULL,
        directory TEXT NOT NULL,
        accepted REAL NOT NULL,
        PRIMARY KEY (run, session_id, call_id)
    ) STRICT;
    CREATE TABLE calls (                -- ended, also refused and lost ones
        number INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        path TEXT NOT NULL,             -- of its file; empty where that was not known
        digest TEXT NOT NULL,           -- the same
        agent TEXT NOT NULL,
        agent_name TEXT NOT NULL,
        agent_session_id TEXT NOT NULL,
        message_id TEXT NOT NULL,
        directory TEXT NOT NULL,
        accepted REAL NOT NULL,
        ended REAL NOT NULL,
        worker_id TEXT NOT NULL,
        outcome TEXT NOT NULL,          -- a kind of the contract, "refused" or "lost"
        cause TEXT NOT NULL,            -- of a refusal its reason
        message TEXT NOT NULL,
        queue_seconds REAL NOT NULL,
        run_seconds REAL NOT NULL,
        cpu_seconds REAL NOT NULL,
        memory_peak_bytes INTEGER NOT NULL,
        output_bytes INTEGER NOT NULL,
        spilled_bytes INTEGER NOT NULL,
        stop_seconds REAL NOT NULL,
        more TEXT NOT NULL,             -- JSON: what is shown of one call, and never searched
        arguments TEXT,                 -- as operators are shown them; NULL unless they are to be kept
        arguments_bytes INTEGER NOT NULL,
        result TEXT,                    -- the same
        result_bytes INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX calls_by_time ON calls (ended);
    CREATE INDEX calls_by_id ON calls (call_id);
    CREATE INDEX calls_by_session ON calls (session_id, ended);
    CREATE INDEX calls_by_tool ON calls (tool, ended);
    CREATE INDEX calls_by_agent ON calls (agent, ended);
    CREATE INDEX calls_by_outcome ON calls (outcome, ended);
    CREATE INDEX calls_by_cause ON calls (cause, ended);
    CREATE INDEX calls_failed ON calls (ended) WHERE outcome <> 'ok';
    """,
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        time REAL NOT NULL,
        type TEXT NOT NULL,             -- as the contract names it
        session_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        worker_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        message TEXT NOT NULL,
        details TEXT NOT NULL           -- JSON, an object of texts
    ) STRICT;
    CREATE INDEX events_by_time ON events (time);
    CREATE INDEX events_by_type ON events (type, time);
    CREATE INDEX events_by_session ON events (session_id, time);
    CREATE INDEX events_by_tool ON events (tool, time);
    CREATE INDEX events_decided ON events (time) WHERE type GLOB 'decision.*';
    """,
    # Of calls that went well only what is asked for is found by an index: each costs the most frequent row its part.
    """
    DROP INDEX calls_by_outcome;
    DROP INDEX calls_by_cause;
    CREATE INDEX calls_by_outcome ON calls (outcome, ended) WHERE outcome <> 'ok';
    CREATE INDEX calls_by_cause ON calls (cause, ended) WHERE outcome <> 'ok';
    """,
)


def size_of(database: sqlite3.Connection) -> int:
    """Return the bytes of the pages that are in use."""
    pages, free, page_bytes = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page_bytes


def prune(database: sqlite3.Connection, bounds: RecordsSection, now: float) -> Iterator[None]:
    """Remove what is beyond the bounds, in transactions of their own; yields after each, and gives the room back at last."""
    before = now - bounds.retention_seconds
    for table, time in (("calls", "ended"), ("events", "time"), ("runs", "ended")):
        key = "run" if table == "runs" else "number"
        while database.execute(
            f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {time} < ? LIMIT {CHUNK_ROWS})",  # noqa: S608  # names of ours
            [before],
        ).rowcount:
            yield
    for table in ("calls", "events"):
        yield from _remove_first(database, table, max(0, _rows(database, table) - bounds.rows))
    while (size := size_of(database)) > bounds.bytes_max:
        share = 1 - bounds.bytes_max * BYTES_KEPT / size
        rows = {table: _rows(database, table) for table in ("calls", "events")}
        if not any(rows.values()):
            break  # an empty file is larger than that
        for table, count in rows.items():
            yield from _remove_first(database, table, math.ceil(share * count))
    # `execute` would take the first step alone, which frees one page.
    database.executescript("PRAGMA incremental_vacuum")


def _rows(database: sqlite3.Connection, table: str) -> int:
    """Return how many rows there are at most: those from the first number to the last."""
    first, last = database.execute(
        f"SELECT (SELECT min(number) FROM {table}), (SELECT max(number) FROM {table})"  # noqa: S608  # names of ours
    ).fetchone()
    return 0 if first is None else last - first + 1


def _remove_first(database: sqlite3.Connection, table: str, count: int) -> Iterator[None]:
    if count <= 0:
        return
    (first,) = database.execute(f"SELECT min(number) FROM {table}").fetchone()  # noqa: S608  # names of ours
    for number in range(first + min(count, CHUNK_ROWS), first + count + CHUNK_ROWS, CHUNK_ROWS):
        last = min(number, first + count)
        database.execute(f"DELETE FROM {table} WHERE number < ?", [last])  # noqa: S608  # names of ours
        yield
