"""Our end of a worker's protocol: messages down to it, frames up from it; `worker.wire` is its own end.

Nothing the worker said is lost with it. Its words and its end come on ways of their own, and either may be
the first; and a message sent to a worker that has just ended breaks the connection while its last words
still lie in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Decoder, Frame, FrameError
from toolcelld.protocol.messages import ToWorker, split

__all__ = ["WorkerChannel"]


class WorkerChannel(asyncio.Protocol):
    """One stream of frames; opened once, closed once, and harmless to use after that."""

    def __init__(self, on_frame: Callable[[Frame], None], on_error: Callable[[FrameError], None]) -> None:
        self._on_frame = on_frame
        self._on_error = on_error
        self._decoder = Decoder()
        self._redactor: Redactor | None = None
        self._socket: socket.socket
        self._transport: asyncio.Transport | None = None
        self._stopped = False  # what comes is no protocol any more

    async def open(self, connection: socket.socket) -> None:
        """Begin to listen at our end, which is this wire's from now on."""
        self._socket = connection
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=connection)

    def close(self) -> None:
        """Hear and say nothing more."""
        self._stopped = True
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def redact(self, redactor: Redactor) -> None:
        """From here on nobody hears these values."""
        self._redactor = redactor

    def send(self, message: ToWorker, payload: bytes = b"") -> None:
        """Queue one message; a worker that has ended takes it silently."""
        for frame in split(message, payload):
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.write(frame)

    def pause(self) -> None:
        """Read no more for now: the worker's writes will wait."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def break_off(self, error: FrameError) -> None:
        """Listen no more, because of this."""
        self._stopped = True
        self.pause()
        if self._redactor is not None:
            error = FrameError(self._redactor.redacted(str(error).encode(errors="replace")).decode())
        self._on_error(error)

    def read_remaining(self) -> None:
        """Read all that is there now; for a worker that has ended, the last that there will be."""
        if self._transport is None:
            return
        with contextlib.suppress(OSError):  # it is empty, or closed
            while not self._stopped and (data := self._socket.recv(PAYLOAD_BYTES_MAX)):
                self.data_received(data)

    # From the loop

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:  # a message could not be sent; the socket is closed after this
            self.read_remaining()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self.break_off(error)
            return
        for frame in frames:
            self._on_frame(frame if self._redactor is None else self._redactor.frame(frame))
