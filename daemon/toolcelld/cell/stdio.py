"""Reads stdout and stderr of a cell.

The output is redacted and passed on. The receiver can pause reading; then the pipe fills, and the tool's writes block.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import struct
import termios
from collections.abc import Callable
from typing import Final, Literal

from toolcelld.output.redaction import Redactor, StreamRedactor

READ_BYTES: Final = 64 * 1024
"""The capacity of a pipe."""
TAIL_BYTES: Final = 16 * 1024
"""Of the end of each stream in a call, for the diagnosis of a crash: the interpreter's report of one has up to 100 frames."""

Source = Literal["stdout", "stderr"]
SOURCES: Final[tuple[Source, ...]] = ("stdout", "stderr")


def _ignore(_: Source, __: bytes) -> bool:
    return False


class StdioReader:
    """The reading ends of both pipes.

    Args:
        on_output: Called with the stream and the data; it returns True to pause reading until `resume`.
    """

    def __init__(self, on_output: Callable[[Source, bytes], bool]) -> None:
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[Source, int] = {}
        self._poll = select.poll()
        self._redactors: dict[Source, StreamRedactor] = {}
        self.tails: dict[Source, bytes] = {}
        """The end of what was printed since they were cleared, at the beginning of a call."""

    def tail(self, source: Source) -> str:
        """Return the end of what was printed since the beginning of the call."""
        return self.tails.get(source, b"").decode(errors="replace")

    def add(self, source: Source) -> int:
        """Make a stream's pipe, and return the descriptor of its writing end. Raises `OSError`."""
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        self._pipes[source] = read
        self._poll.register(read, select.POLLIN)
        return write

    def start(self) -> None:
        for source, number in self._pipes.items():
            self._loop.add_reader(number, self._on_readable, source)

    def redact(self, redactor: Redactor) -> None:
        """Replace these secrets in the output from now on."""
        self._redactors = {source: redactor.stream() for source in self._pipes}

    def drain(self) -> None:
        """Read what the pipes hold now, so that output printed before a result precedes it."""
        # One poll of both pipes, before and after each call, of which most print nothing. No earlier drain proves that the
        # pipes are empty now: a destructor or a thread that Python does not count may print at any time.
        polled = self._poll.poll(0)
        if not polled and not self._redactors:
            return
        readable = {number for number, _ in polled}
        for source, number in list(self._pipes.items()):
            # The bytes in the pipe now, up to 1 MiB if the tool enlarged it; later output of leftover processes is not read.
            waiting = _bytes_in(number) if number in readable else 0
            while waiting > 0 and (count := self._read(number, source)) > 0:
                waiting -= count
        for source, stream in self._redactors.items():
            if source in self._pipes and (rest := stream.flush()):
                self._pass_on(self._pipes[source], source, rest)

    def resume(self, source: Source) -> None:
        """Resume reading this stream."""
        if (number := self._pipes.get(source)) is not None:
            self._loop.add_reader(number, self._on_readable, source)

    def close(self) -> None:
        """Stop reading and close the pipes. Safe to call twice."""
        for number in self._pipes.values():
            self._loop.remove_reader(number)
            os.close(number)
        self._pipes.clear()
        self._on_output = _ignore  # it leads to its owner

    def _on_readable(self, source: Source) -> None:
        number = self._pipes[source]
        if self._read(number, source) == 0:
            self._loop.remove_reader(number)

    def _read(self, number: int, source: Source) -> int:
        """Read once and return the number of bytes: 0 at the end of the stream, -1 when the pipe is empty."""
        try:
            data = os.read(number, READ_BYTES)
        except BlockingIOError:
            return -1
        if not data:
            return 0
        if (stream := self._redactors.get(source)) is None:
            self._pass_on(number, source, data)
        elif shown := stream.feed(data):
            self._pass_on(number, source, shown)
        return len(data)

    def _pass_on(self, number: int, source: Source, data: bytes) -> None:
        self.tails[source] = (self.tails.get(source, b"") + data)[-TAIL_BYTES:]
        if self._on_output(source, data):
            self._loop.remove_reader(number)


def _bytes_in(number: int) -> int:
    """Return the number of unread bytes in a pipe."""
    count: int = struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, bytes(4)))[0]
    return count
