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

    def __init__(self, heard: Callable[[Frame], None], garbled: Callable[[FrameError], None]) -> None:
        self._heard = heard
        self._garbled = garbled
        self._decoder = Decoder()
        self._redaction: Redactor | None = None
        self._end: socket.socket
        self._transport: asyncio.Transport | None = None
        self._deaf = False  # what comes is no protocol any more

    async def open(self, end: socket.socket) -> None:
        """Begin to listen at our end, which is this wire's from now on."""
        self._end = end
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def close(self) -> None:
        """Hear and say nothing more."""
        self._deaf = True
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def conceal(self, redaction: Redactor) -> None:
        """From here on nobody hears these values."""
        self._redaction = redaction

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
        self._deaf = True
        self.pause()
        if self._redaction is not None:
            error = FrameError(self._redaction.redacted(str(error).encode(errors="replace")).decode())
        self._garbled(error)

    def hear_the_rest(self) -> None:
        """Read all that is there now; for a worker that has ended, the last that there will be."""
        if self._transport is None:
            return
        with contextlib.suppress(OSError):  # it is empty, or closed
            while not self._deaf and (data := self._end.recv(PAYLOAD_BYTES_MAX)):
                self.data_received(data)

    # From the loop

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:  # a message could not be sent; the socket is closed after this
            self.hear_the_rest()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self.break_off(error)
            return
        for frame in frames:
            self._heard(frame if self._redaction is None else self._redaction.frame(frame))
