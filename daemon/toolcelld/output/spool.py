"""One stream of one call on its way to the model, with the whole of it kept beside where it is too long.

As long as the stream fits, it costs a bounded buffer and no file: `feed` and `finish_now` are all
there is, without a thread and without an await. From the first byte over, everything from the
beginning goes to a file, in blocks, until the call's share or the quota or the disk is used up; what
comes after that is only clipped. A disk that fails makes an output incomplete, never a call.

`feed` says when a block waits. Whoever feeds then awaits `flush` before reading on, and so the tool's
pipe fills and the tool is as slow as the disk: that is the whole of the back pressure.
"""

from __future__ import annotations

from dataclasses import replace

from toolcelld.output.spill import Output, OutputOrigin, SpillStore
from toolcelld.output.spill_files import Writing
from toolcelld.output.truncate import BYTES_CEILING, Keep, Truncated, Truncator

__all__ = ["BLOCK_BYTES", "SpooledOutput"]

# What is written at once: a hop to the thread costs about a tenth of a millisecond, this much about as long.
BLOCK_BYTES = 256 * 1024
# What may wait if nobody flushes: the longest stream that can still fit, and a block. Beyond, the output is incomplete.
PENDING_BYTES_MAX = BYTES_CEILING + BLOCK_BYTES


class SpooledOutput:
    """Takes a stream in; ends with `finish` (or `finish_now`), else with `discard`. One task at a time."""

    def __init__(
        self,
        spills: SpillStore,
        origin: OutputOrigin,
        *,
        lines_max: int | None,
        bytes_max: int | None,
        keep: Keep = "head",
    ) -> None:
        self._spills = spills
        self._origin = origin
        self._truncator = Truncator(lines_max, bytes_max, keep)
        # The mutable state: what waits for the file, how much more it may get, what of the quota is ours.
        self._pending = bytearray()
        self._room_bytes = spills.bytes_per_call
        self._reserved_bytes = 0
        self._file: Writing | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes so far."""
        return self._truncator.total_bytes

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; True says that a block waits for the disk and `flush` is due."""
        self._truncator.feed(data)
        if self._room_bytes and data:
            if len(self._pending) >= PENDING_BYTES_MAX:
                self._room_bytes = 0  # nobody flushes
            else:
                self._pending += data[: self._room_bytes]
                self._room_bytes -= min(len(data), self._room_bytes)
        return len(self._pending) >= BLOCK_BYTES and self._truncator.over

    async def flush(self) -> None:
        """Write what waits, once the stream is too long; what was begun is written even when this is cancelled."""
        if self._truncator.over:
            await self._write()

    def finish_now(self) -> Truncated | None:
        """The result of a stream that fits, without waiting; None where `finish` must be awaited."""
        if self._truncator.over:
            return None
        truncated = self._truncator.result()
        return None if truncated.cut else truncated

    async def finish(self) -> tuple[Truncated, Output | None]:
        """The result, and where it was cut the whole; its handle can be read from now on, also after a restart."""
        truncated = self._truncator.result()
        if not truncated.cut:
            return truncated, None
        try:
            await self._write()
            return truncated, await self._add(truncated)
        finally:
            self.discard()  # of the file: nothing if it was indexed

    def discard(self) -> None:
        """Forget everything; harmless after `finish` and twice."""
        self._stop_keeping()
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
            self._stop_keeping()
            return
        self._reserved_bytes += pending_bytes
        if self._file is None:
            self._file = Writing(self._spills.new_path())
        data, self._pending = self._pending, bytearray()
        if not await self._spills.run(self._file.write, data):
            self._stop_keeping()

    async def _add(self, truncated: Truncated) -> Output:
        spills, file = self._spills, self._file
        kept_bytes = 0 if file is None else file.kept_bytes
        created = spills.now()
        output = Output(
            handle="" if file is None else file.handle,
            origin=self._origin,
            total_bytes=truncated.total_bytes,
            kept_bytes=kept_bytes,
            total_lines=truncated.total_lines,
            complete=kept_bytes == truncated.total_bytes,
            created=created,
            expires=None if spills.retention_seconds is None else created + spills.retention_seconds,
        )
        if file is not None and kept_bytes and await spills.add(output):
            self._file = None
            spills.later(file.close)  # and so unlock it: the row is there
            return output
        return replace(output, handle="", kept_bytes=0, complete=False)

    def _stop_keeping(self) -> None:
        self._room_bytes = 0
        self._pending.clear()
