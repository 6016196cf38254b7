"""Each start and end of a daemon, and those that ended without a word.

Several daemons may write to the same records. Each holds a lock on one byte of a file, whose place is the number of its
run: the kernel releases it when the process ends, however it ends. So a daemon that starts knows which of the runs that
have no end are over: those whose byte can be locked. Their open calls are lost, and become calls that have ended so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Sequence
from typing import Final

from toolcelld.event_log import OperatorEvent
from toolcelld.records.rows import LOST, Row, event_row
from toolcelld.records.tables import OPEN_COLUMNS

_LOCK: Final = struct.Struct("@hhqqi")  # struct flock of fcntl.h
KILLED: Final = "The daemon, process {pid}, was killed, or its host went down, before this call ended."
DROPPED: Final = "How it ended was not recorded: more happened than could be written."
RUN_MAX: Final = 2**62
"""Beyond the largest number of a run."""
_INSERT_UNRECORDED: Final = (
    f"INSERT OR IGNORE INTO open_calls SELECT {', '.join('?' * len(OPEN_COLUMNS))} WHERE NOT EXISTS"  # noqa: S608  # numbers
    " (SELECT 1 FROM calls INDEXED BY calls_by_id WHERE run = ? AND session_id = ? AND call_id = ?)"
)


class RunLock:
    """The lock of the run of this daemon. Raises `OSError`.

    Args:
        path: The file of the locks, which is created.
        run: The number of the run.
    """

    def __init__(self, path: str, run: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._run = run
        self.take(run)

    def take(self, run: int) -> bool:
        """Lock the byte of a run; return False if the daemon that has locked it is alive."""
        wanted = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, run, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, wanted)
        except BlockingIOError:
            return False
        return True

    def leave(self, run: int) -> None:
        """Unlock the byte of a run that is over."""
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, run, 1, 0))

    def close(self) -> None:
        """Release it."""
        os.close(self._file)


def begin(database: sqlite3.Connection, run: int, version: str, started: float) -> bool:
    """Record the start of a daemon; return False if this file has it already."""
    added = database.execute(
        "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, NULL)",
        [run, os.getpid(), version, started, started],
    ).rowcount
    if added:
        message = f"process {os.getpid()}, version {version}"
        add_event(database, run, OperatorEvent("daemon.started", started, message=message))
    return bool(added)


def end(database: sqlite3.Connection, run: int, ended: float, why: str) -> None:
    """Record the end of a daemon, and what is not known of its calls."""
    lose(database, run, ended, "unrecorded", DROPPED)
    database.execute("UPDATE runs SET ended = ?, seen = ? WHERE run = ?", [ended, ended, run])
    add_event(database, run, OperatorEvent("daemon.stopped", ended, message=why))


def unended(database: sqlite3.Connection) -> list[int]:
    """Return the runs that have no end."""
    return [run for (run,) in database.execute("SELECT run FROM runs WHERE ended IS NULL")]


def close_lost(
    database: sqlite3.Connection, lock: RunLock, run: int, accepted: Callable[[int], Sequence[Row]]
) -> None:
    """Record the end of the daemons that were killed, and their calls as lost.

    Args:
        database: The records.
        lock: That of this daemon.
        run: That of this daemon.
        accepted: Returns rows for `OPEN_COLUMNS` of calls that a run has accepted last; some may be recorded.
    """
    for lost, pid, seen in database.execute(
        "SELECT run, pid, seen FROM runs WHERE ended IS NULL AND run <> ?", [run]
    ).fetchall():
        if not lock.take(lost):
            continue
        for row in accepted(lost):
            database.execute(_INSERT_UNRECORDED, [*row, *row[:3]])
        calls = lose(database, lost, seen, "daemon_killed", KILLED.format(pid=pid))
        database.execute("UPDATE runs SET ended = seen WHERE run = ?", [lost])
        message = f"process {pid} was killed, or its host went down; calls lost with it: {calls}"
        add_event(database, lost, OperatorEvent("daemon.lost", seen, message=message))
        with contextlib.suppress(OSError):
            lock.leave(lost)


def lose(database: sqlite3.Connection, run: int, ended: float, cause: str, message: str) -> int:
    """Record the open calls of a run as lost; return how many there were."""
    same = ", ".join(OPEN_COLUMNS)
    more = json.dumps({"ran": False, "side_effects_possible": True})
    count = database.execute(
        f"INSERT INTO calls ({same}, ended, worker_id, outcome, cause, message, queue_seconds, run_seconds, cpu_seconds,"  # noqa: S608  # names of ours
        " memory_peak_bytes, output_bytes, spilled_bytes, stop_seconds, more, arguments_bytes, result_bytes)"
        f" SELECT {same}, max(accepted, ?), '', ?, ?, ?, 0, 0, 0, 0, 0, 0, 0,"
        " json_set(?, '$.story', json_array(json_array(accepted, 'accepted'), json_array(max(accepted, ?), 'lost'))), 0, 0"
        " FROM open_calls WHERE run = ?",
        [ended, LOST, cause, message, more, ended, run],
    ).rowcount
    database.execute("DELETE FROM open_calls WHERE run = ?", [run])
    return count


def add_event(database: sqlite3.Connection, run: int, event: OperatorEvent) -> None:
    """Record an event."""
    database.execute(
        "INSERT INTO events (run, time, type, session_id, call_id, worker_id, tool, message, details)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        event_row(run, event),
    )
