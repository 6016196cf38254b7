"""Our stdin and stdout as lines, one JSON message each: the transport of MCP's hosts and of those of `toolcell bridge`.

Not that of MCP's SDK: it reads in a thread which nothing can wake, so that a signal would end us only after the host's
next line. Here both ends are pipes of the loop, and `end` is an end of the input like any other.

Meanwhile stdin is empty and stdout is stderr for other code, so that output of a library does not reach the protocol.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import Final, Self

LINE_BYTES_MAX: Final = 64 * 1024 * 1024  # 16 MiB of arguments, written in escapes
LAST_WORDS_SECONDS = 1.0  # for a host that has stopped reading


class NoPipe(Exception):
    """stdin or stdout is not connected to a host."""


class LineTooLong(Exception):
    """A line is longer than LINE_BYTES_MAX; the rest of it is skipped."""


class _Input(asyncio.StreamReader):
    """Sets `ended` at the end of the input, also while no read is pending."""

    def __init__(self) -> None:
        super().__init__(limit=LINE_BYTES_MAX)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()


class _SingleLines(asyncio.StreamReaderProtocol):
    """Offers a line that comes by itself to `on_line`, while a read waits for it."""

    on_line: Callable[[bytes], bool] | None = None

    def __init__(self, reader: _Input) -> None:
        super().__init__(reader)
        self._reader = reader
        self.waits = False  # a read does, for the beginning of a line
        self.unread = 0  # bytes that were given to the reader, and not read

    def data_received(self, data: bytes) -> None:
        """Have a single line taken at once; give everything else to the reader."""
        if self.waits and not self.unread and self.on_line is not None and data.find(b"\n") == len(data) - 1:
            try:
                if self.on_line(data):
                    return
            except Exception as error:  # noqa: BLE001  # raised by the read
                self._reader.set_exception(error)
                return
        self.unread += len(data)
        super().data_received(data)


class Pipes:
    """Our stdin and stdout. An asynchronous context manager."""

    def __init__(self, peer: str) -> None:
        """`peer` is what is expected at the other end, as a text: "an MCP host"."""
        self._peer = peer

    async def __aenter__(self) -> Self:
        for descriptor, name in ((0, "stdin"), (1, "stdout")):
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
                raise NoPipe(f"{name} is no pipe: {self._peer} is expected at its other end.")
        loop = asyncio.get_running_loop()
        self._reader = _Input()
        self._ended = False
        self._within = False  # a line that is too long, whose rest is skipped
        self._input = _SingleLines(self._reader)
        self._incoming, _ = await loop.connect_read_pipe(
            lambda: self._input, os.fdopen(_taken(0, _nothing()), "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
            os.fdopen(_taken(1, os.dup(2)), "wb", 0),
        )
        self._output = transport
        self._writer = asyncio.StreamWriter(self._output, protocol, None, loop)
        return self

    def offer(self, on_line: Callable[[bytes], bool]) -> None:
        """Call `on_line` with a line that comes by itself while a read waits, in the turn of the loop that has it.

        It returns whether it has taken the line; else the read gets it. What it raises, the read raises.
        """
        self._input.on_line = on_line

    async def __aexit__(self, *_: object) -> None:
        """Close when the host has read all, or has not for too long."""
        self.end()
        self._writer.close()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self._output.abort()
        except OSError:
            pass  # the host is gone

    def end(self) -> None:
        """End the input, as the host does when it closes its end; harmless twice."""
        self._ended = True
        self._incoming.close()
        self._reader.feed_eof()

    @property
    def ended(self) -> asyncio.Event:
        """Set when the input has ended, be there lines of it that were not read."""
        return self._reader.ended

    async def read(self) -> bytes:
        """Return the next line, b"" at the end. Nothing is lost if it is cancelled. Raises LineTooLong."""
        taking = self._input
        while not self._ended:
            taking.waits = not self._within
            try:
                line = await self._reader.readuntil()
                taking.unread -= len(line)
            except asyncio.IncompleteReadError as end:
                line = end.partial
            except asyncio.LimitOverrunError as over:
                await self._reader.readexactly(over.consumed)  # they are there
                taking.unread -= over.consumed
                if self._within:
                    continue
                self._within = True
                raise LineTooLong(f"A line has at most {LINE_BYTES_MAX} bytes.") from None
            finally:
                taking.waits = False
            if not self._within:
                return b"" if self._ended else line
            self._within = False
        return b""

    @property
    def unwritten(self) -> int:
        """The bytes that the host has not taken."""
        return self._output.get_write_buffer_size()

    def put(self, line: bytes) -> None:
        """Write a line without waiting; it is dropped if the host is gone, which ends the input as well."""
        if self._output.is_closing():
            self.end()
        else:
            self._output.write(line)

    async def drained(self) -> None:
        """Wait while the host does not read. Raises OSError if it is gone, which ends the input as well."""
        try:
            await self._writer.drain()
        except OSError:
            self.end()
            raise

    def abort(self) -> None:
        """Drop what is unwritten, and close."""
        self._output.abort()
        self.end()

    async def write(self, line: bytes) -> None:
        """Write a line; waits while the host does not read. Raises OSError if it is gone, which ends the input as well."""
        self._output.write(line)
        await self.drained()


def _taken(descriptor: int, instead: int) -> int:
    """A private duplicate of a standard descriptor, which is replaced for other code."""
    ours = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return ours


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
