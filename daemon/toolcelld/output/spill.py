"""Stores outputs that were too long for the model: in files, with an index, a quota and a retention time.

Each output is one file in a private directory, named by its handle, and one row in the store, which is written when
the file is complete. The writer locks the file until the row is committed, so a file without a row and without a lock
is an orphan of a daemon that has ended: the sweep of any daemon may remove it. A row without a file is removed as
well. This is sufficient for several daemons to share one directory, and for cleaning up after any crash.

All work on files is done on one thread, in order, never on the loop: `later` runs after all work that was submitted
before. `spool` writes the files.

The quota counts the indexed outputs and those that this daemon is writing. When it is reached, the oldest are removed.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

from toolcelld.output.spill_files import (
    HANDLE,
    Orphans,
    Reading,
    list_handles,
    make_private,
    new_handle,
    unlink,
)
from toolcelld.store import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")

# One message of the protocol carries at most this much data.
PART_BYTES = 48 * 1024
# With a quota of a gigabyte, 100 KB each; this bounds the number of smaller files.
OUTPUTS_MAX = 10_000
# Orphans that one sweep checks; each takes a descriptor meanwhile.
_ORPHANS_MAX = 256
SWEEP_SECONDS = 3600.0

_PREFIX = re.compile(r"o-[0-9a-v]{0,26}", re.ASCII)
_COLUMNS = (
    "handle, session_id, secret_digest, call_id, tool, source,"
    " total_bytes, kept_bytes, total_lines, complete, created, expires"
)


class UnknownOutput(LookupError):
    """There is no such output, or not any more; the text is shown to the user."""


@dataclass(frozen=True, slots=True)
class OutputOrigin:
    """Where an output comes from, and which session may read it."""

    session_id: str
    secret_digest: bytes
    call_id: str
    tool: str
    source: str


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """An output, complete or as much of it as was kept; without a handle nothing was."""

    handle: str
    origin: OutputOrigin
    total_bytes: int
    kept_bytes: int
    total_lines: int
    complete: bool
    created: float
    expires: float | None
    reason: str = ""  # why it is not complete; not indexed

    def belongs_to(self, session_id: str, secret_digest: bytes) -> bool:
        """Return whether a session with this secret may read it."""
        return (
            hmac.compare_digest(self.origin.secret_digest, secret_digest)
            and self.origin.session_id == session_id
        )


class SpillStore:
    """The spilled outputs; call `start` before anything else and `aclose` at the end. A limit of None or 0 is off.

    Args:
        directory: The private directory of the files.
        store: The database of the index.
        bytes_per_call: The limit for one call; 64 MiB by default.
        quota_bytes: The limit for all outputs together; 1 GiB by default.
        retention_seconds: How long an output is kept; 7 days by default.
        now: Returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        directory: str,
        store: Store,
        *,
        bytes_per_call: int | None = 64 * 1024 * 1024,
        quota_bytes: int | None = 1024 * 1024 * 1024,
        retention_seconds: float | None = 7 * 24 * 3600.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.bytes_per_call = bytes_per_call or sys.maxsize
        self.quota_bytes = quota_bytes or sys.maxsize
        self.retention_seconds = retention_seconds or None
        self.now = now
        self.failure = ""  # why no output can be kept
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spills")
        # The mutable state, used on the loop only. Outputs of other daemons are counted at the next sweep.
        self._indexed_bytes = 0
        self._indexed_count = 0
        self._writing_bytes = 0
        self._eviction_lock = asyncio.Lock()

    async def start(self) -> None:
        """Make the directory, and sweep. If that fails, log a warning and keep no outputs."""
        try:
            await self.run(make_private, self.directory)
            await self.sweep()
        except OSError as error:
            logger.warning("Outputs beyond what the model reads are not kept: %s.", error)
            self.bytes_per_call = 0
            self.failure = error.strerror or str(error)

    async def aclose(self) -> None:
        """Finish all submitted work, and end the thread."""
        await self.run(lambda: None)
        self._thread.shutdown()

    async def sweep_for_ever(self) -> None:
        """Sweep every hour, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except OSError as error:
                logger.warning("%s was not swept: %s.", self.directory, error)

    @property
    def usage_bytes(self) -> int:
        """Bytes of all outputs, including those that are being written."""
        return self._indexed_bytes + self._writing_bytes

    # Reading.

    async def get(self, handle: str) -> KeptOutput:
        """Return the output with this handle. Raises `UnknownOutput`."""
        if not HANDLE.fullmatch(handle):
            raise self._unknown_output(handle)
        return await self.find(handle)

    async def find(self, prefix: str) -> KeptOutput:
        """Return the only output whose handle begins with `prefix`. Raises `UnknownOutput`."""
        if not _PREFIX.fullmatch(prefix):
            raise self._unknown_output(prefix)
        rows = await self._store.read(
            f"SELECT {_COLUMNS} FROM outputs WHERE handle GLOB ? AND (expires IS NULL OR expires > ?) LIMIT 2",  # noqa: S608  # our own constant
            [f"{prefix}*", self.now()],
        )
        if not rows:
            raise self._unknown_output(prefix)
        if len(rows) > 1:
            raise UnknownOutput(f"More than one output begins with {prefix}. Give more of the handle.")
        return _output(rows[0])

    def read(self, output: KeptOutput, start_bytes: int = 0, length_bytes: int = 0) -> AsyncGenerator[bytes]:
        """Read a range of an output, in parts of at most `PART_BYTES`.

        An output that is deleted meanwhile is read to its end. A caller that may stop early must close the generator.

        Args:
            start_bytes: Where to begin; 0 by default. Nothing is read beyond the end.
            length_bytes: How much to read; 0, the default, is everything.

        Raises:
            UnknownOutput: The output has been deleted.
        """
        start = min(max(start_bytes, 0), output.kept_bytes)
        end = min(start + (length_bytes or output.kept_bytes), output.kept_bytes)
        return self._read(output.handle, lambda _: (start, end))

    def read_lines(
        self, output: KeptOutput, first_line: int = 1, last_line: int = 0
    ) -> AsyncGenerator[bytes]:
        """Read lines of an output, in parts as `read`.

        Args:
            first_line: The first line, counted from 1; 1 by default.
            last_line: The last line, included; 0, the default, is the end.
        """
        kept = output.kept_bytes

        def find(file: Reading) -> tuple[int, int]:
            return file.find_line(first_line, kept), file.find_line(
                last_line + 1, kept
            ) if last_line else kept

        return self._read(output.handle, find)

    async def _read(self, handle: str, find: Callable[[Reading], tuple[int, int]]) -> AsyncGenerator[bytes]:
        file = Reading(self._path(handle))
        try:
            try:
                await self.run(file.open)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    logger.warning("Output %s cannot be read: %s.", handle, error)
                raise self._unknown_output(handle) from error
            start, end = await self.run(find, file)
            while start < end and (part := await self.run(file.read, min(PART_BYTES, end - start), start)):
                yield part
                start += len(part)
        finally:
            self.later(file.close)

    def _unknown_output(self, handle: str) -> UnknownOutput:
        days = (self.retention_seconds or 0) / (24 * 3600)
        kept = f" Outputs are kept for {days:g} days." if days else ""
        return UnknownOutput(f"There is no output {handle[:64]!r}, or no longer.{kept}")

    # Writing, for `spool`.

    def new_path(self) -> str:
        """Return a path whose name is a new random handle."""
        return self._path(new_handle())

    async def reserve(self, count_bytes: int) -> bool:
        """Reserve a share of the quota, removing the oldest outputs; False if the quota is used up by writers."""
        async with self._eviction_lock:
            if not self._fits(count_bytes) and self._writing_bytes + count_bytes <= self.quota_bytes:
                rows = await self._store.read(
                    "SELECT handle, kept_bytes FROM outputs ORDER BY created, rowid"
                )
                self._count(rows)
                oldest = iter(rows)
                evicted: list[str] = []
                while not self._fits(count_bytes) and (row := next(oldest, None)):
                    evicted.append(row[0])
                    self._indexed_bytes -= row[1]
                    self._indexed_count -= 1
                await self._remove(evicted)
            fits = self._fits(count_bytes)
            if fits:
                self._writing_bytes += count_bytes
            return fits

    def release(self, count_bytes: int) -> None:
        """Release a reserved share of the quota."""
        self._writing_bytes -= count_bytes

    async def add(self, output: KeptOutput) -> bool:
        """Index an output whose file is complete and still locked; return whether the row is committed."""
        handle, origin, *figures, _ = astuple(output)
        added = await self._store.commit(
            f"INSERT INTO outputs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # our own constant
            [handle, *origin, *figures],
        )
        if added:
            self._indexed_bytes += output.kept_bytes
            self._indexed_count += 1
        return added

    def _fits(self, count_bytes: int) -> bool:
        return self.usage_bytes + count_bytes <= self.quota_bytes and self._indexed_count < OUTPUTS_MAX

    def _count(self, rows: list[tuple[Any, ...]]) -> None:
        self._indexed_bytes = sum(row[1] for row in rows)
        self._indexed_count = len(rows)

    # Removing.

    async def discard(self, handles: Iterable[str]) -> None:
        """Remove outputs that no session may read."""
        await self._remove(handles)

    async def sweep(self) -> None:
        """Remove expired outputs, rows without a file, and orphaned files."""
        # Rows first: a file is made before its row, so the file of a row that is not listed afterwards has been lost.
        rows = await self._store.read("SELECT handle, kept_bytes, expires FROM outputs")
        names = await self.run(list_handles, self.directory)
        now = self.now()
        removed = {row[0] for row in rows if row[0] not in names or (row[2] is not None and row[2] <= now)}
        if removed:
            await self._remove(removed)
        if self._store.durable:  # an index in memory does not have the rows of other daemons
            await self._remove_orphans(names - {row[0] for row in rows})
        self._count(await self._store.read("SELECT handle, kept_bytes FROM outputs"))

    async def _remove(self, handles: Iterable[str]) -> None:
        handle_list = list(handles)
        await self._store.commit(
            "DELETE FROM outputs WHERE handle IN (SELECT value FROM json_each(?))", [json.dumps(handle_list)]
        )
        await self.run(unlink, [self._path(handle) for handle in handle_list])

    async def _remove_orphans(self, names: set[str]) -> None:
        """Remove files that have no row and no writer."""
        orphans = Orphans()
        try:
            # Once a file is locked here, its writer has ended: it has committed the row, or never will.
            await self.run(orphans.take, [self._path(name) for name in sorted(names)[:_ORPHANS_MAX]])
            known = {row[0] for row in await self._store.read("SELECT handle FROM outputs")}
            await self.run(unlink, [path for path in orphans.paths() if os.path.basename(path) not in known])
        finally:
            self.later(orphans.close)

    # The thread.

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Run work on the thread; it completes even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, work, *arguments))

    def later(self, work: Callable[[], object]) -> None:
        """Run work on the thread, after all earlier work, without waiting for it."""
        try:
            self._thread.submit(work)
        except RuntimeError:
            work()  # the thread has ended because the daemon is stopping, so the loop may block

    def _path(self, handle: str) -> str:
        return os.path.join(self.directory, handle)


def _output(row: tuple[Any, ...]) -> KeptOutput:
    handle, session_id, secret_digest, call_id, tool, source, *figures, complete, created, expires = row
    origin = OutputOrigin(session_id, secret_digest, call_id, tool, source)
    total_bytes, kept_bytes, total_lines = figures
    return KeptOutput(handle, origin, total_bytes, kept_bytes, total_lines, bool(complete), created, expires)
