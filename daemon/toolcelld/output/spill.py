"""The outputs that were too long for the model: files beside, with an index and an end.

Each is one file in a private directory, named by its handle, and one row in the store, written when
the file is whole. A file that is being written is locked by its writer until its row is committed,
so a file that has no row and no lock belongs to nobody: its daemon died, and any daemon's sweep may
remove it. A row without a file is removed as well. Nothing else is needed for several daemons to
share one directory, and nothing is left for ever whichever way one of them ends.

All work on files happens on one thread, in order, never on the loop: what is closed or removed later
is closed or removed after everything that was asked for before. `capture` writes the files.

The quota counts what is indexed and what this daemon is writing. Where it is reached the oldest go first.
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

__all__ = ["PART_BYTES", "Output", "OutputOrigin", "SpillStore", "UnknownOutput"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# One message of the protocol carries at most this much data.
PART_BYTES = 48 * 1024
# With a gigabyte of quota, 100 KB each; below that it is the number of files that would grow without end.
OUTPUTS_MAX = 10_000
# Orphans that one sweep looks at; each costs a descriptor meanwhile.
_ORPHANS_MAX = 256
SWEEP_SECONDS = 3600.0

_PREFIX = re.compile(r"o-[0-9a-v]{0,26}", re.ASCII)
_COLUMNS = (
    "handle, session_id, secret_digest, call_id, tool, source,"
    " total_bytes, kept_bytes, total_lines, complete, created, expires"
)


class UnknownOutput(LookupError):  # it is an answer to the caller, not a fault of ours
    """There is no such output, or no longer; the text says so to a person."""


@dataclass(frozen=True, slots=True)
class OutputOrigin:
    """Where an output comes from, and who may read it."""

    session_id: str
    secret_digest: bytes
    call_id: str
    tool: str
    source: str


@dataclass(frozen=True, slots=True)
class Output:
    """A whole output, or as much of it as was kept; without a handle nothing was."""

    handle: str
    origin: OutputOrigin
    total_bytes: int
    kept_bytes: int
    total_lines: int
    complete: bool
    created: float
    expires: float | None

    def belongs_to(self, session_id: str, secret_digest: bytes) -> bool:
        """Whether a session that shows this secret may read it."""
        return (
            hmac.compare_digest(self.origin.secret_digest, secret_digest)
            and self.origin.session_id == session_id
        )


class SpillStore:
    """The kept outputs; call `start` before anything else and `aclose` at the end. A bound of None or 0 is off."""

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
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spills")
        # The mutable state, touched on the loop only. What other daemons add is seen at the next sweep.
        self._indexed_bytes = 0
        self._indexed_count = 0
        self._writing_bytes = 0
        self._eviction_lock = asyncio.Lock()

    async def start(self) -> None:
        """Make the directory and remove what daemons before left; where that fails nothing is kept, with a warning."""
        try:
            await self.run(make_private, self.directory)
        except OSError as error:
            logger.warning("Outputs beyond what the model reads are not kept: %s.", error)
            self.bytes_per_call = 0
        else:
            await self.sweep()

    async def aclose(self) -> None:
        """Finish what was asked for."""
        await self.run(lambda: None)
        self._thread.shutdown()

    async def sweep_for_ever(self) -> None:
        """Sweep every hour, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    @property
    def usage_bytes(self) -> int:
        """Bytes kept beside, with those being written now."""
        return self._indexed_bytes + self._writing_bytes

    # Reading.

    async def get(self, handle: str) -> Output:
        """The output with this handle; raises UnknownOutput."""
        if not HANDLE.fullmatch(handle):
            raise self._unknown_output(handle)
        return await self.find(handle)

    async def find(self, prefix: str) -> Output:
        """The one output whose handle begins so; raises UnknownOutput."""
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

    def read(self, output: Output, start_bytes: int = 0, length_bytes: int = 0) -> AsyncGenerator[bytes]:
        """A range of an output in parts; a length of 0 is all. Beyond the end there is nothing.

        An output that is deleted meanwhile is read to its end; one that is already gone raises UnknownOutput.
        Whoever may leave early closes the generator.
        """
        start = min(max(start_bytes, 0), output.kept_bytes)
        end = min(start + (length_bytes or output.kept_bytes), output.kept_bytes)
        return self._read(output.handle, lambda _: (start, end))

    def read_lines(self, output: Output, first_line: int = 1, last_line: int = 0) -> AsyncGenerator[bytes]:
        """Lines of an output, counted from 1, both included; a last line of 0 is the last there is."""
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

    # Writing, for `capture`.

    def new_path(self) -> str:
        """A path with a new handle, that nobody can guess, as its name."""
        return self._path(new_handle())

    async def reserve(self, count_bytes: int) -> bool:
        """Make room for bytes that are about to be written; the oldest outputs go. False: there is none."""
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
        """Give back what was reserved."""
        self._writing_bytes -= count_bytes

    async def add(self, output: Output) -> bool:
        """Index an output whose file is whole and still locked; whether it is committed."""
        handle, origin, *figures = astuple(output)
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

    async def sweep(self) -> None:
        """Remove expired outputs, rows without a file, and files without an owner."""
        # Rows first: a file is there before its row, so a row whose file is missing afterwards has lost it.
        rows = await self._store.read("SELECT handle, kept_bytes, expires FROM outputs")
        names = await self.run(list_handles, self.directory)
        now = self.now()
        removed = {row[0] for row in rows if row[0] not in names or (row[2] is not None and row[2] <= now)}
        if removed:
            await self._remove(removed)
        if self._store.durable:  # an index in memory does not know what other daemons keep
            await self._remove_orphans(names - {row[0] for row in rows})
        self._count(await self._store.read("SELECT handle, kept_bytes FROM outputs"))

    async def _remove(self, handles: Iterable[str]) -> None:
        handle_list = list(handles)
        await self._store.commit(
            "DELETE FROM outputs WHERE handle IN (SELECT value FROM json_each(?))", [json.dumps(handle_list)]
        )
        await self.run(unlink, [self._path(handle) for handle in handle_list])

    async def _remove_orphans(self, names: set[str]) -> None:
        """Remove files without a row that nobody is writing."""
        orphans = Orphans()
        try:
            # With the lock of a file in hand its writer is done: it has committed the row by now, or never will.
            await self.run(orphans.take, [self._path(name) for name in sorted(names)[:_ORPHANS_MAX]])
            known = {row[0] for row in await self._store.read("SELECT handle FROM outputs")}
            await self.run(unlink, [path for path in orphans.paths() if os.path.basename(path) not in known])
        finally:
            self.later(orphans.close)

    # The thread.

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Do something on the thread; once asked for it happens, even if whoever waits is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, work, *arguments))

    def later(self, work: Callable[[], object]) -> None:
        """Do something on the thread that nobody waits for, after all that was asked for before."""
        try:
            self._thread.submit(work)
        except RuntimeError:
            work()  # the thread has ended and the daemon with it: the loop serves nobody any more

    def _path(self, handle: str) -> str:
        return os.path.join(self.directory, handle)


def _output(row: tuple[Any, ...]) -> Output:
    handle, session_id, secret_digest, call_id, tool, source, *figures, complete, created, expires = row
    origin = OutputOrigin(session_id, secret_digest, call_id, tool, source)
    total_bytes, kept_bytes, total_lines = figures
    return Output(handle, origin, total_bytes, kept_bytes, total_lines, bool(complete), created, expires)
