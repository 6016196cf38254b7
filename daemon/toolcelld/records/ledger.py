"""The records, as the rest of the daemon sees them: what is recorded and when, and what can be asked.

A call is put into the queue when it is accepted and when it has ended, an event when it is published. Whatever has not
ended when a batch is written gets a row of its own, by which the next daemon finds it if this one is killed; it finds what
was accepted after that batch in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast

import toolcelld
from toolcelld import database as files
from toolcelld.calls.outcomes.history import NO_FILE, CallHistory, CallSummary
from toolcelld.config.schema import RecordsSection
from toolcelld.event_log import Broadcast, OperatorEvent
from toolcelld.records import query, runs, tables
from toolcelld.records.journal import Journal, rows_left, sweep
from toolcelld.records.query import CallFilter, EventFilter
from toolcelld.records.rows import (
    OWN_COLUMNS,
    OWN_COLUMNS_KEPT,
    SHARED_COLUMNS,
    RecordedCall,
    call_of,
    call_rows,
    event_of,
    open_row,
)
from toolcelld.records.tables import OPEN_COLUMNS
from toolcelld.records.writer import FAULTS, Writer, is_damaged, reason_of
from toolcelld.store import Notice

PRUNE_SECONDS: Final = 60.0
"""Between two looks at the bounds."""
MEASURE_SECONDS: Final = 1.0
"""Between two looks at the size, which take as long as two rows."""
PRUNE_ROWS: Final = 10_000
"""Or after so many rows: a hundredth of the bound by default."""
UNRECORDED: Final = frozenset(
    {"call.accepted", "call.started", "call.ended", "call.refused", "catalog.changed", "worker.started"}
)
"""Types of events without a row: calls have their own, and the others say nothing once they are over."""

_AT_ONCE: Final = (64, 32, 16, 8, 4, 2, 1)
"""Calls of one statement; older releases of SQLite take 999 values. A statement costs as much as a row, and for each the thread
gives the interpreter up and has to get it back from the loop. The values that calls have in common are given once."""
_INSERT_OPEN: Final = f"INSERT OR REPLACE INTO open_calls VALUES ({', '.join('?' * len(OPEN_COLUMNS))})"  # noqa: S608
_DELETE_OPEN: Final = "DELETE FROM open_calls WHERE run = ? AND session_id = ? AND call_id = ?"


class Records:
    """What has happened.

    Args:
        path: The file of the database.
        section: The bounds, and whether anything is recorded.
        history: The calls in memory, which hands over what was accepted and what has ended.
        happenings: The events of the daemon.
        now: Returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        path: str,
        section: RecordsSection,
        history: CallHistory,
        happenings: Broadcast[OperatorEvent],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.section = section
        """As it was read last; whether anything is recorded is decided at the start."""
        self.run = secrets.randbelow(runs.RUN_MAX)
        self._history = history
        self._happenings = happenings
        self._now = now
        self._started = now()
        self._writer: Writer | None = None
        self._unread = ""  # why what was asked last could not be read
        # Used on the thread only.
        # The calls that have a row among the open ones: session and id.
        self._open: set[tuple[str | float, ...]] = set()
        self._lock: runs.RunLock | None = None
        self._journal: Journal | None = None
        self._pruned = 0.0  # by the monotonic clock
        self._rows = 0  # since then
        self._measured = -math.inf  # when its size was, by the monotonic clock

    @property
    def size_bytes(self) -> int:
        """What the rows take on disk."""
        return self._writer.size_bytes if self._writer is not None else 0

    @property
    def lost(self) -> int:
        """What should have been recorded since the start, and could not be."""
        return self._history.dropped + (self._writer.lost if self._writer is not None else 0)

    @property
    def fault(self) -> str:
        """Why nothing can be recorded or read now; empty where it can, and where the configuration switches it off."""
        return (self._writer.fault or self._unread) if self._writer is not None else ""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What is lost of the records, and what to do; empty where all is well. Blocks."""
        found = [
            Notice(
                f"The records were damaged and are set aside as {aside}; new ones were begun.",
                f"Remove that file and {aside}-*",
            )
            for aside in files.names_aside(self.path)
            if os.path.exists(aside)
        ]
        if self._writer is not None and self.fault:
            text = f"{self.path} cannot be written: {self.fault}. Calls go on; {self.lost} records are lost."
            found.append(Notice(text, self._writer.remedy))
        elif self.lost:
            text = f"{self.lost} records were lost since the daemon was started."
            found.append(Notice(text, "See why: toolcell logs"))
        return tuple(found)

    def start(self) -> None:
        """Begin to record, if the configuration says so."""
        if not self.section.enabled:
            return
        writer = self._writer = Writer(
            self.path,
            tables.SCHEMA,
            on_batch=self._on_batch,
            on_open=self._on_open,
            write=self._write,
            after=self._after,
        )
        writer.start()
        self._history.feed = writer.queue
        self._happenings.keep = self._keep

    async def aclose(self, why: str) -> None:
        """Record the end of the daemon, and stop.

        Args:
            why: What it was ended by.
        """
        writer = self._writer
        if writer is None:
            return
        self._history.feed = self._happenings.keep = None
        try:
            await writer.ask(lambda database: self._end(database, why))
        except FAULTS:
            pass  # the next daemon finds that this one has no end
        finally:
            await asyncio.to_thread(writer.stop)
            self._history.journal = NO_FILE
            if self._journal is not None:
                self._journal.close()
            if self._lock is not None:
                self._lock.close()

    # What is recorded besides calls

    def _keep(self, event: OperatorEvent) -> None:
        if event.type not in UNRECORDED:
            self._history.feed_records(event)

    # What can be asked; where the records cannot be read, there are none

    async def calls(self, wanted: CallFilter, limit: int) -> list[RecordedCall]:
        """Return the newest calls that have ended and fit, the newest first."""
        return [call_of(row) for row in await self._rows_of(*query.calls_sql(wanted, limit))]

    async def find(self, beginning: str, limit: int) -> list[RecordedCall]:
        """Return calls whose id begins with a text."""
        return [call_of(row) for row in await self._rows_of(*query.find_sql(beginning, limit))]

    async def events(self, wanted: EventFilter, limit: int) -> list[OperatorEvent]:
        """Return the newest events that fit, the newest first."""
        return [event_of(row) for row in await self._rows_of(*query.events_sql(wanted, limit))]

    async def _rows_of(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._writer is None:
            return []
        try:
            found = await self._writer.ask(lambda database: database.execute(sql, parameters).fetchall())
        except FAULTS as error:
            # A damaged file is set aside by now, and new records are begun, as `notices` says.
            self._unread = "" if is_damaged(error) else reason_of(error)
            return []
        self._unread = ""
        return found

    # On the thread

    def _on_batch(self) -> None:
        if self._journal is not None:
            self._history.journal = self._journal.turn()

    def _on_open(self, database: sqlite3.Connection) -> None:
        if self._lock is None:
            self._lock = runs.RunLock(f"{self.path}.runs", self.run)
        runs.close_lost(database, self._lock, self.run, lambda run: rows_left(self.path, run))
        if runs.begin(database, self.run, toolcelld.version(), self._started):
            self._open.clear()  # of a file that is not there any more

    def _write(self, database: sqlite3.Connection, things: Sequence[object]) -> None:
        ended: list[CallSummary] = []
        accepted: list[tuple[str | float, ...]] = []
        for thing in things:
            if isinstance(thing, CallSummary):
                ended.append(thing)
            elif isinstance(thing, tuple):
                accepted.append(cast("tuple[str | float, ...]", thing))
            elif isinstance(thing, OperatorEvent):
                runs.add_event(database, self.run, thing)
            else:
                raise TypeError(f"{thing!r} has no row")
        # By now a call may have ended whose summary is of the next batch: it needs a row until then.
        over = {(call.session_id, call.call_id) for call in ended}
        opened = {key: call for call in accepted if (key := call[:2]) not in over}
        if opened:
            database.executemany(_INSERT_OPEN, [open_row(self.run, call) for call in opened.values()])
            self._open.update(opened)
        add_calls(database, self.run, ended, arguments=self.section.arguments)
        if closed := self._open & over:
            database.executemany(_DELETE_OPEN, [(self.run, *key) for key in closed])
            self._open -= closed
        database.execute("UPDATE runs SET seen = ? WHERE run = ?", [self._now(), self.run])
        self._rows += len(things)

    def _after(self, database: sqlite3.Connection) -> Iterator[None]:
        assert self._writer is not None
        if self._journal is None:  # once this run is recorded, without which nobody would look for its files
            with contextlib.suppress(OSError):  # the next batch tries again
                self._journal = Journal(self.path, self.run)
                self._history.journal = self._journal.turn()
        clock = time.monotonic()
        if self._rows >= PRUNE_ROWS or clock - self._pruned >= PRUNE_SECONDS:
            self._pruned, self._rows = clock, 0
            yield from tables.prune(database, self.section, self._now())
            sweep(self.path, runs.unended(database))
            self._measured = -math.inf
        if clock - self._measured >= MEASURE_SECONDS:
            self._measured = clock
            self._writer.size_bytes = tables.size_of(database)

    def _end(self, database: sqlite3.Connection, why: str) -> None:
        with database:
            database.execute("BEGIN IMMEDIATE")
            runs.end(database, self.run, self._now(), why)
        sweep(self.path, runs.unended(database))


def add_calls(
    database: sqlite3.Connection, run: int, calls: Sequence[CallSummary], *, arguments: bool = False
) -> None:
    """Record calls that have ended.

    Args:
        database: The records.
        run: That of the daemon.
        calls: The calls.
        arguments: Whether their arguments and results are kept; they are not by default.
    """
    for shared, rows in call_rows(run, calls, arguments=arguments):
        start = 0
        for count in _AT_ONCE:
            while start + count <= len(rows):
                values = [*shared, *chain.from_iterable(rows[start : start + count])]
                database.execute(_insert_calls(count, arguments=arguments), values)
                start += count


@functools.cache
def _insert_calls(count: int, *, arguments: bool) -> str:
    """Return the statement for so many calls with the same values of `SHARED_COLUMNS`."""
    own = OWN_COLUMNS_KEPT if arguments else OWN_COLUMNS
    rows = ", ".join([f"({', '.join('?' * len(own))})"] * count)
    shared = ", ".join("?" * len(SHARED_COLUMNS))
    return f"INSERT INTO calls ({', '.join((*SHARED_COLUMNS, *own))}) SELECT {shared}, * FROM (VALUES {rows})"  # noqa: S608  # names of ours
