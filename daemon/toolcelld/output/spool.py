"""Truncates one stream of a call for the model, and spools it to a file if it is too long.

While the stream fits, it takes a bounded buffer and no file: `feed` and `finish_now` need neither a thread nor an
await. When it is too long, all of it is written to a file in blocks, until the call's share, the quota or the disk is
used up; later data is only truncated. A disk error makes the output incomplete and does not fail the call; the
output says why.

`feed` returns True when a block is pending. The caller then awaits `flush` before it reads on, so the tool's pipe
fills and the tool's writes block. This is the only back pressure.
"""

from __future__ import annotations

from dataclasses import replace

from toolcell._units import format_bytes
from toolcelld.flavours import Notice
from toolcelld.output.spill import KeptOutput, OutputOrigin, SpillStore
from toolcelld.output.spill_files import Writing
from toolcelld.output.truncate import BYTES_CEILING, Keep, Truncated, Truncator

# Written at once: a switch to the thread takes about a tenth of a millisecond, and writing this much about the same.
BLOCK_BYTES = 256 * 1024
# Pending data without a flush: the longest stream that can fit, and a block. Beyond this the output is incomplete.
PENDING_BYTES_MAX = BYTES_CEILING + BLOCK_BYTES


class SpooledOutput:
    """Receives one stream; ends with `finish` or `finish_now`, else with `discard`. For one task at a time.

    Args:
        spills: Owns the files.
        origin: The call and the stream that the output comes from.
        lines_max: The limit on lines; None is no limit.
        bytes_max: The limit on bytes; None is no limit.
        keep: Which end of a long stream is kept; "head" by default.
        notice: The words that say that it was truncated; "plain" by default.
    """

    def __init__(
        self,
        spills: SpillStore,
        origin: OutputOrigin,
        *,
        lines_max: int | None,
        bytes_max: int | None,
        keep: Keep = "head",
        notice: Notice = "plain",
    ) -> None:
        self._spills = spills
        self._origin = origin
        self._truncator = Truncator(lines_max, bytes_max, keep, notice)
        # The mutable state: data that is not written yet, how much more the file may get, its share of the quota, and
        # why it gets no more.
        self._pending = bytearray()
        self._room_bytes = spills.bytes_per_call
        self._reserved_bytes = 0
        self._file: Writing | None = None
        self._lost_because = spills.failure

    @property
    def total_bytes(self) -> int:
        """The number of bytes so far."""
        return self._truncator.total_bytes

    def feed(self, data: bytes) -> bool:
        """Add the next bytes; True if a block is pending and `flush` is due."""
        self._truncator.feed(data)
        if data and not self._lost_because:
            if len(self._pending) >= PENDING_BYTES_MAX:
                self._keep_no_more("it came faster than it was written")  # the caller does not flush
            else:
                self._pending += data[: self._room_bytes]
                if len(data) > self._room_bytes:
                    self._keep_no_more(
                        f"[spill] bytes_per_call is {format_bytes(self._spills.bytes_per_call)}"
                    )
                else:
                    self._room_bytes -= len(data)
        return len(self._pending) >= BLOCK_BYTES and self._truncator.over

    async def flush(self) -> None:
        """Write pending data if the stream is too long; a write that has begun completes even if this is cancelled."""
        if self._truncator.over:
            await self._write()

    def finish_now(self) -> Truncated | None:
        """Return the result of a stream that fits; None where `finish` must be awaited."""
        if self._truncator.over:
            return None
        truncated = self._truncator.result()
        return None if truncated.cut else truncated

    async def finish(self) -> tuple[Truncated, KeptOutput | None]:
        """Return the result and, where it was truncated, the spilled output, which can be read also after a restart."""
        truncated = self._truncator.result()
        if not truncated.cut:
            return truncated, None
        try:
            await self._write()
            return truncated, await self._add(truncated)
        finally:
            self.discard()  # removes the file, unless it was indexed

    def discard(self) -> None:
        """Discard everything. Safe to call after `finish`, and twice."""
        self._keep_no_more("")
        self._pending.clear()
        self._spills.release(self._reserved_bytes)
        self._reserved_bytes = 0
        if self._file is not None:
            self._spills.later(self._file.remove)
            self._file = None

    async def _write(self) -> None:
        pending_bytes = len(self._pending)
        if not pending_bytes:
            return
        if not await self._spills.reserve(pending_bytes):
            self._give_up(f"[spill] quota is {format_bytes(self._spills.quota_bytes)}")
            return
        self._reserved_bytes += pending_bytes
        if self._file is None:
            self._file = Writing(self._spills.new_path())
        data, self._pending = self._pending, bytearray()
        if not await self._spills.run(self._file.write, data):
            self._give_up(self._file.failure)

    async def _add(self, truncated: Truncated) -> KeptOutput:
        spills, file = self._spills, self._file
        kept_bytes = 0 if file is None else file.kept_bytes
        created = spills.now()
        output = KeptOutput(
            handle="" if file is None else file.handle,
            origin=self._origin,
            total_bytes=truncated.total_bytes,
            kept_bytes=kept_bytes,
            total_lines=truncated.total_lines,
            complete=kept_bytes == truncated.total_bytes,
            created=created,
            expires=None if spills.retention_seconds is None else created + spills.retention_seconds,
            reason="" if kept_bytes == truncated.total_bytes else self._lost_because,
        )
        if file is not None and kept_bytes and await spills.add(output):
            self._file = None
            spills.later(file.close)  # which unlocks it; its row is committed
            return output
        reason = self._lost_because or "it could not be recorded"
        return replace(output, handle="", kept_bytes=0, complete=False, reason=reason)

    def _give_up(self, reason: str) -> None:
        """Drop what is not written yet, and keep nothing more."""
        self._keep_no_more(reason)
        self._pending.clear()

    def _keep_no_more(self, reason: str) -> None:
        self._room_bytes = 0
        self._lost_because = self._lost_because or reason
