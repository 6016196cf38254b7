"""Our stdin and stdout as the lines of MCP's stdio transport: one JSON message each.

Not the SDK's own: that one reads in a thread which nothing can wake, so that a signal would end us only after the
host's next line. Here both ends are pipes of the loop, and `end` is an end of the input like any other.

Meanwhile stdin is empty and stdout is stderr for other code, so that output of a library does not reach the protocol.
"""

from __future__ import annotations

import asyncio
import os
import stat
from types import TracebackType
from typing import Final, Self

__all__ = ["LineTooLong", "NoPipe", "Pipes"]

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # 16 MiB of arguments, written in escapes
LAST_WORDS_SECONDS = 1.0  # for a host that has stopped reading


class NoPipe(Exception):
    """stdin or stdout is not connected to a host."""


class LineTooLong(Exception):
    """A line is longer than MESSAGE_BYTES_MAX; what follows of it is read as another."""


class Pipes:
    """Our stdin and stdout. An asynchronous context manager."""

    async def __aenter__(self) -> Self:
        for descriptor, name in ((0, "stdin"), (1, "stdout")):
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
                raise NoPipe(f"{name} is no pipe: an MCP host is expected at its other end.")
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
        self._ended = False
        self._incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(_taken(0, _nothing()), "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
            os.fdopen(_taken(1, os.dup(2)), "wb", 0),
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close when the host has read all, or has not for too long."""
        self.end()
        self._writer.close()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:
            pass  # the host is gone

    def end(self) -> None:
        """End the input, as the host does when it closes its end; harmless twice."""
        self._ended = True
        self._incoming.close()
        self._reader.feed_eof()

    async def read(self) -> bytes:
        """Return the next line, b"" at the end. Nothing is lost if it is cancelled. Raises LineTooLong."""
        try:
            line = await self._reader.readline()
        except ValueError:
            raise LineTooLong(f"A line has at most {MESSAGE_BYTES_MAX} bytes.") from None
        return b"" if self._ended else line

    async def write(self, line: bytes) -> None:
        """Write a line; waits while the host does not read. Raises OSError if it is gone, which ends the input as well."""
        self._writer.write(line)
        try:
            await self._writer.drain()
        except OSError:
            self.end()
            raise


def _taken(descriptor: int, instead: int) -> int:
    """A private duplicate of a standard descriptor, which is replaced for other code."""
    ours = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return ours


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
