"""The daemon's end of the protocol: sends messages to a worker and receives its frames.

The worker's end is `worker.channel`. Frames that a worker sent before it ended are not lost. Its exit is reported on
another descriptor and may be seen before its last frames; and a message that is sent to a worker that has just ended
breaks the connection while the last frames are still unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Decoder, Frame, FrameError, encode, split
from toolcelld.protocol.messages import CallHeader, ToWorker

PIPE_BYTES: Final = 256 * 1024
"""As much as a socket holds, so that a long result takes as few switches between the processes."""
READ_BYTES: Final = 64 * 1024
"""Of one read. The allocator takes a larger buffer from the kernel each time, which costs ten times the read."""
SO_PASSRIGHTS: Final = 83  # <asm-generic/socket.h>


def open_pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a pipe for a worker's frames. Raises `OSError`."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a user's pipes together have a bound
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return reading, writing


def refuse_descriptors(end: socket.socket) -> None:
    """Have the kernel refuse messages to this end of a unix socket that carry descriptors; since Linux 6.16.

    Closing one of them, or receiving a message that has one, can take as long as its sender likes.
    """
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)


def _ignore(_: object) -> None:
    pass


class WorkerChannel(asyncio.Protocol):
    """The connection to one worker: a socket for sending and a pipe for receiving, as a pipe carries no descriptors.

    It is opened once; after `close`, every method has no effect.

    Args:
        on_frame: Called with every frame; may be replaced.
        on_error: Called when the worker breaks the protocol.
    """

    def __init__(self, on_frame: Callable[[Frame], None], on_error: Callable[[FrameError], None]) -> None:
        self.on_frame = on_frame
        self._on_error = on_error
        self._decoder = Decoder()
        self.redactor: Redactor | None = None
        self._loop = asyncio.get_running_loop()
        self._reports = -1
        self._reading = False
        self._transport: asyncio.Transport | None = None
        self._stopped = False  # later data is ignored
        self._paused = False
        self._held = False
        self._waiting: deque[Frame] = deque()  # read, and not passed on: at most what one read brings

    def open_reports(self, reports: int) -> None:
        """Start reading from the reading end of a pipe, which the channel owns from now on."""
        os.set_blocking(reports, False)
        self._reports = reports
        self.resume()

    async def open(self, connection: socket.socket) -> None:
        """Send to a connected socket from now on, which the channel owns."""
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=connection)

    def close(self) -> None:
        self._stopped = True
        self._stop_reading()
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.on_frame = self._on_error = _ignore  # they lead to its owner

    def redact(self, redactor: Redactor) -> None:
        """Replace these secrets in every frame from now on."""
        self.redactor = redactor

    def send(self, message: ToWorker | CallHeader, payload: bytes = b"") -> None:
        """Queue one message; it is dropped if the worker has ended."""
        if len(payload) <= PAYLOAD_BYTES_MAX:
            if (transport := self._transport) is not None and not transport.is_closing():
                transport.write(encode(message, payload))
            return
        for frame in split(message, payload):
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.write(frame)

    def pause(self) -> None:
        """Pause reading, so that the worker's writes block."""
        self._paused = True
        self._stop_reading()

    def hold(self) -> None:
        """Pause reading, and pass on no frame that was read, until `release`."""
        self._held = True
        self._stop_reading()

    def release(self) -> None:
        """Pass on the frames that were read, and resume reading, unless it is held again or paused."""
        self._held = False
        self._pass_on()
        if not self._paused:
            self.resume()

    def resume(self) -> None:
        self._paused = False
        if not self._held and not self._reading and self._reports >= 0:
            self._reading = True
            self._loop.add_reader(self._reports, self._read)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._reports)

    def fail(self, error: FrameError) -> None:
        """Stop reading because the worker broke the protocol, and report the error."""
        self._stopped = True
        self.pause()
        if self.redactor is not None:
            error = FrameError(self.redactor.redacted(str(error).encode(errors="replace")).decode())
        self._on_error(error)

    def read_remaining(self) -> None:
        """Read everything that the pipe holds now; for a worker that has ended, its last frames."""
        while self._held and not self._stopped:
            self._held = False
            self._pass_on()
        while self._reports >= 0 and not self._stopped and self._read():
            while self._held and not self._stopped:
                self._held = False
                self._pass_on()

    # From the loop

    def eof_received(self) -> bool:
        """Keep the socket open: it is for sending only."""
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:  # a message could not be sent: the worker has ended
            self.read_remaining()

    def _read(self) -> bool:
        """Read once, and pass on the frames that are complete; return whether anything was there."""
        try:
            data = os.read(self._reports, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._stop_reading()  # the last writer has closed it
            return False
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self.fail(error)
            return True
        for place, frame in enumerate(frames):
            if self._held:
                self._waiting.extend(frames[place:])
                break
            self.on_frame(frame if self.redactor is None else self.redactor.frame(frame))
        return True

    def _pass_on(self) -> None:
        while self._waiting and not self._held and not self._stopped:
            frame = self._waiting.popleft()
            self.on_frame(frame if self.redactor is None else self.redactor.frame(frame))
