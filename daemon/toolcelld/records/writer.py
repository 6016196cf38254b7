"""The thread of the records: it takes what happened from a queue and commits it in batches.

Who has something to record puts it into the queue, and waits for nothing. The thread sleeps while there is nothing; of
the first thing it finds it lets some time pass, so that one commit has many rows. What is asked of the records goes
through the same queue, and so an answer has all that was put before the question.

Whatever keeps the database from being written loses the batch at hand and nothing else: the next batch is tried like any
other, and so records resume by themselves when there is room again. A damaged file is set aside, and a new one begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypeVar

from toolcelld import database as files
from toolcelld.database import DamagedError, NewerError, Schema

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_SECONDS: Final = 0.1
"""From the first thing of a batch to its commit; what a daemon that is killed leaves unrecorded happened within it."""
BATCH_MAX: Final = 5000
"""Things of one batch: a commit of some 50 ms."""
WAL_BYTES_MAX: Final = 4 * 2**20
"""What is left of the write-ahead log between batches."""
FAULTS: Final = (sqlite3.Error, OSError, DamagedError, NewerError)
REMEDIES: Final[dict[type[Exception], str]] = {
    NewerError: "Install the newer version again, or move the file away",
    PermissionError: "Give the file and its directory back to the user of the daemon",
}
REMEDY: Final = "Make room, or mend the file system"
"""Of all other faults."""
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class DatabaseTask(Generic[T]):
    """Something to do with the database, on the thread, after everything that was recorded before.

    Args:
        work: Gets the database; raises one of `FAULTS` if that fails.
    """

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()

    def settle(self, result: T | None, error: Exception | None) -> None:
        """Give the answer, from the thread."""

        def settled() -> None:
            if self.answer.done():
                return  # the wait for it was cancelled
            if error is not None:
                self.answer.set_exception(error)
            else:
                self.answer.set_result(result)  # type: ignore[arg-type]  # there is one without an error

        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(settled)


class Writer:
    """Args:
    path: The file, which is created with its directory.
    schema: That of the file.
    on_batch: Called before the things of a batch are taken.
    on_open: Called with the database whenever it was opened, in a transaction.
    write: Writes some of the things, in a transaction that is tried again for each alone if one cannot be written.
    after: Called after each batch, outside of a transaction; what it yields for is one of its own.
    """

    def __init__(
        self,
        path: str,
        schema: Schema,
        *,
        on_batch: Callable[[], None],
        on_open: Callable[[sqlite3.Connection], None],
        write: Callable[[sqlite3.Connection, Sequence[Any]], None],
        after: Callable[[sqlite3.Connection], Iterator[None]],
    ) -> None:
        self.path = path
        self.queue: SimpleQueue[object] = SimpleQueue()
        self.size_bytes = 0
        self.lost = 0
        """Things that could not be written."""
        self.fault = ""
        """Why nothing can be written now; empty where all is well."""
        self.remedy = REMEDY
        """What to do about the last fault."""
        self._schema = schema
        self._on_batch = on_batch
        self._on_open = on_open
        self._write = write
        self._after = after
        # Of what waits for a batch; an Event takes ten steps to wait for
        self._hurry: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        # Used on the thread only.
        self._database: sqlite3.Connection | None = None
        self._file = _NO_FILE  # the one that is open, as the last batch left it
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)

    def start(self) -> None:
        """Start the thread, which opens the database."""
        self._thread.start()
        self.queue.put(None)
        self._hurry.put(None)

    async def ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of the database. Raises one of `FAULTS`."""
        question = DatabaseTask(work)
        self.queue.put(question)
        self._hurry.put(None)
        return await question.answer

    def stop(self) -> None:
        """Commit what was put before, close the database and end the thread. Blocks."""
        self._stopping = True
        self.queue.put(None)
        self._hurry.put(None)
        self._thread.join()

    # The thread

    def _run(self) -> None:
        while not self._stopping or not self.queue.empty():
            batch = [self.queue.get()]
            with contextlib.suppress(Empty):
                self._hurry.get(timeout=BATCH_SECONDS)
            for _ in range(self._hurry.qsize()):
                self._hurry.get()
            self._on_batch()
            batch += [self.queue.get() for _ in range(min(self.queue.qsize(), BATCH_MAX - 1))]
            questions: list[DatabaseTask[Any]] = [item for item in batch if isinstance(item, DatabaseTask)]
            self._commit([item for item in batch if item is not None and not isinstance(item, DatabaseTask)])
            for question in questions:
                self._ask(question)
        self._close()

    def _commit(self, things: list[object]) -> None:
        try:
            self._commit_all(things)
        except FAULTS as error:
            self._lose(len(things), error)
        except Exception:  # a bug in what is written must not end the records
            if len(things) > 1:
                for thing in things:
                    self._commit([thing])
            else:
                logger.exception("%r cannot be recorded", things)
                self.lost += len(things)

    def _commit_all(self, things: list[object]) -> None:
        try:
            self._commit_once(things)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            self._close()
            files.set_aside(self.path, error)
            self._commit_once(things)

    def _commit_once(self, things: list[object]) -> None:
        database = self._opened()
        if things:
            with _transaction(database):
                self._write(database, things)
        for _ in self._after(database):
            pass
        left = _look(self.path)
        if left.inode == self._file.inode:  # else the next batch finds that it was removed or replaced
            self._file = left
        if self.fault:
            logger.warning("%s is written again; %d records were lost.", self.path, self.lost)
            self.fault = ""

    def _ask(self, question: DatabaseTask[Any]) -> None:
        try:
            question.settle(question.work(self._opened()), None)
        except Exception as error:  # noqa: BLE001  # who asks gets it
            if is_damaged(error):
                with contextlib.suppress(OSError):
                    self._close()
                    files.set_aside(self.path, error)
            question.settle(None, error)

    def _opened(self) -> sqlite3.Connection:
        """Return the database; open it where that has failed before, or where the file was removed, replaced or cut.

        One that is cut is read whole for damage: its pages in memory would hide it until a restart.
        """
        now = _look(self.path)
        was_cut = now.inode == self._file.inode and now.size_bytes < self._file.size_bytes
        if self._database is not None and (was_cut or now.inode != self._file.inode):
            self._close()
        if self._database is None:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._database = files.open_file(self.path, self._schema, check=was_cut)
            self._file = _look(self.path)
            try:
                self._database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}").fetchall()
                with _transaction(self._database):
                    self._on_open(self._database)
            except BaseException:
                self._close()
                raise
        return self._database

    def _lose(self, count: int, error: Exception) -> None:
        self.lost += count
        if not self.fault:  # once, so that a full disk does not fill the log
            logger.warning("%s cannot be written, records are lost: %s.", self.path, reason_of(error))
        self.fault = reason_of(error)
        self.remedy = REMEDIES.get(type(error), REMEDY)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()


def reason_of(error: Exception) -> str:
    """Return a fault in words."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror} ({error.filename})" if error.filename else error.strerror


def is_damaged(error: Exception) -> bool:
    """Return whether an error says that the file is no database, or a damaged one."""
    code = (
        error.sqlite_errorcode
        if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode")
        else 0
    )
    return code & 0xFF in _DAMAGED  # the low byte is the primary code


class _FileState(NamedTuple):
    """What tells whether a file is the same, and whole. Only this process makes it shorter, within a batch."""

    inode: int
    size_bytes: int


_NO_FILE: Final = _FileState(0, 0)


def _look(path: str) -> _FileState:
    try:
        found = os.stat(path)
    except OSError:
        return _NO_FILE
    return _FileState(found.st_ino, found.st_size)


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    """Commit what is done within, or nothing of it."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield
