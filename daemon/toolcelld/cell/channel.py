"""The daemon's end of the protocol: sends messages to a worker and receives its frames.

The worker's end is `worker.channel`. Frames that a worker sent before it ended are not lost. Its exit is reported on
another descriptor and may be seen before its last frames; and a message that is sent to a worker that has just ended
breaks the connection while the last frames are still unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable

from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Decoder, Frame, FrameError
from toolcelld.protocol.messages import ToWorker, split

__all__ = ["WorkerChannel"]


class WorkerChannel(asyncio.Protocol):
    """The connection to one worker. It is opened once; after `close`, every method has no effect.

    Args:
        on_frame: Called with every frame.
        on_error: Called when the worker breaks the protocol.
    """

    def __init__(self, on_frame: Callable[[Frame], None], on_error: Callable[[FrameError], None]) -> None:
        self._on_frame = on_frame
        self._on_error = on_error
        self._decoder = Decoder()
        self._redactor: Redactor | None = None
        self._socket: socket.socket
        self._transport: asyncio.Transport | None = None
        self._stopped = False  # later data is ignored
        self._paused = False
        self._held = False
        self._waiting: deque[Frame] = deque()  # read, and not passed on: at most what one read brings

    async def open(self, connection: socket.socket) -> None:
        """Start reading from a connected socket, which the channel owns from now on."""
        self._socket = connection
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=connection)

    def close(self) -> None:
        """Close the connection."""
        self._stopped = True
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def redact(self, redactor: Redactor) -> None:
        """Replace these secrets in every frame from now on."""
        self._redactor = redactor

    def send(self, message: ToWorker, payload: bytes = b"") -> None:
        """Queue one message; it is dropped if the worker has ended."""
        for frame in split(message, payload):
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.write(frame)

    def pause(self) -> None:
        """Pause reading, so that the worker's writes block."""
        self._paused = True
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def hold(self) -> None:
        """Pause reading, and pass on no frame that was read, until `release`."""
        self._held = True
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def release(self) -> None:
        """Pass on the frames that were read, and resume reading, unless it is held again or paused."""
        self._held = False
        self._pass_on()
        if not self._paused:
            self.resume()

    def resume(self) -> None:
        """Resume reading."""
        self._paused = False
        if self._held:
            return
        transport = self._transport
        if transport is not None and not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def fail(self, error: FrameError) -> None:
        """Stop reading because the worker broke the protocol, and report the error."""
        self._stopped = True
        self.pause()
        if self._redactor is not None:
            error = FrameError(self._redactor.redacted(str(error).encode(errors="replace")).decode())
        self._on_error(error)

    def read_remaining(self) -> None:
        """Read everything that the socket holds now; for a worker that has ended, its last frames."""
        if self._transport is None:
            return
        while self._held and not self._stopped:
            self._held = False
            self._pass_on()
        with contextlib.suppress(OSError):  # the socket is empty or closed
            while not self._stopped and (data := self._socket.recv(PAYLOAD_BYTES_MAX)):
                self.data_received(data)
                while self._held and not self._stopped:
                    self._held = False
                    self._pass_on()

    # From the loop

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:  # a message could not be sent; the socket is closed after this
            self.read_remaining()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self.fail(error)
            return
        if self._held:
            self._waiting.extend(frames)
            return
        for place, frame in enumerate(frames):
            self._on_frame(frame if self._redactor is None else self._redactor.frame(frame))
            if self._held:
                self._waiting.extend(frames[place + 1 :])
                return

    def _pass_on(self) -> None:
        while self._waiting and not self._held and not self._stopped:
            frame = self._waiting.popleft()
            self._on_frame(frame if self._redactor is None else self._redactor.frame(frame))
