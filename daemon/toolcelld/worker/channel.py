"""The worker's end of the protocol socketpair.

There are two ways to send. `DaemonChannel.send` blocks until the kernel has the whole message; results
and load reports use it. `UpdateSender` is for the messages of a running tool: it returns at once, keeps only
the newest update and progress, merges metadata, and keeps log records up to a bound. A thread, which
runs only while messages are pending, sends them at most every 20 ms, so that a tool that reports in a
loop causes fifty messages a second and not fifty thousand.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Decoder, Frame, FrameError, encode, split
from toolcelld.protocol.messages import (
    LOST_MAX,
    MESSAGE_BYTES_MAX,
    METADATA_BYTES_MAX,
    RECORDS_MAX,
    FromWorker,
    LogMessage,
    MetadataMessage,
    ProgressMessage,
    UpdateMessage,
)

TELL_INTERVAL_SECONDS: Final = 0.02
LOG_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - 2
"""Of the log records that are pending, as JSON without the brackets, so that a message is one frame."""
PENDING_MAX: Final = 1000
"""Log records that are pending; they are sent in messages of `RECORDS_MAX`."""
UPDATE_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""Of a partial result, which is one frame; about five times what is shown to the model."""
READ_BYTES: Final = 64 * 1024


class DaemonChannel:
    """Frames from a blocking socket and into a pipe; any thread may send, one thread at a time may receive.

    Args:
        receiving: The connected socket, which this object closes.
        sending: The writing end of the pipe, which this object closes.
    """

    def __init__(self, receiving: int, sending: int) -> None:
        self._socket = socket.socket(fileno=receiving)
        self._pipe = sending
        os.set_blocking(sending, False)
        self._decoder = Decoder()
        # Reused: a new buffer of this size takes three system calls for each message.
        self._buffer = bytearray(READ_BYTES)
        self._frames: deque[Frame] = deque()
        self._sending = threading.Lock()
        self._unsent = b""  # the rest of a frame that `offer` sent in part; it is sent before everything else

    def close(self) -> None:
        self._socket.close()
        os.close(self._pipe)

    def fileno(self) -> int:
        """The descriptor to wait for messages at; some may have been read already: see `has_frames`."""
        return self._socket.fileno()

    @property
    def has_frames(self) -> bool:
        """Whether there are frames that were read and not received."""
        return bool(self._frames)

    def receive(self) -> Frame | None:
        """Wait for the next message, with its chunks joined; None when the daemon has closed the channel.

        Raises:
            FrameError: The daemon broke the protocol.
        """
        frame = self._next()
        if frame is None or "size" not in frame.header:
            return frame
        size = frame.header["size"]
        if not isinstance(size, int) or not len(frame.payload) <= size <= MESSAGE_BYTES_MAX:
            raise FrameError(f"a message with a size of {str(size)[:20]}")
        parts = [frame.payload]
        missing = size - len(frame.payload)
        while missing:
            chunk = self._next()
            if chunk is None:
                return None
            if chunk.header["type"] != "chunk" or not 0 < len(chunk.payload) <= missing:
                raise FrameError(
                    f"{chunk.header['type'][:40]} of {len(chunk.payload)} bytes where {missing} bytes of a chunk are missing"
                )
            parts.append(chunk.payload)
            missing -= len(chunk.payload)
        return Frame(frame.header, b"".join(parts))

    def _next(self) -> Frame | None:
        while not self._frames:
            count = self._socket.recv_into(self._buffer)
            if not count:
                return None
            self._frames.extend(self._decoder.feed(memoryview(self._buffer)[:count]))
        return self._frames.popleft()

    def send(self, message: FromWorker, payload: bytes = b"") -> None:
        """Send one message and wait until the kernel has all of it."""
        self.send_frames(split(message, payload))

    def send_frames(self, frames: Iterable[bytes]) -> None:
        """Send encoded frames in one piece, and wait until the kernel has all of them."""
        with self._sending:
            if self._unsent:
                unsent, self._unsent = self._unsent, b""
                self._write(unsent)
            for frame in frames:
                self._write(frame)

    def _write(self, data: bytes) -> None:
        sent = self._write_some(data)
        while sent < len(data):
            self._poll(None)
            sent += self._write_some(data[sent:])

    def _write_some(self, data: bytes) -> int:
        try:
            return os.write(self._pipe, data)
        except BlockingIOError:
            return 0

    def offer(self, frame: bytes) -> bool:
        """Send a frame if that does not block; False if nothing of it was sent."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if self._unsent:
                return False
            if not (sent := self._write_some(frame)):
                return False
            self._unsent = frame[sent:]
            return True
        finally:
            self._sending.release()

    @property
    def whole(self) -> bool:
        """Whether every frame that `offer` began to send is complete."""
        return not self._unsent

    def flush(self) -> None:
        """Send the rest of a frame that `offer` began to send."""
        if self._unsent:
            self.send_frames(())

    def wait_writable(self, timeout_seconds: float) -> None:
        """Wait until the pipe has room, at most `timeout_seconds`."""
        self._poll(timeout_seconds)

    def _poll(self, timeout_seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLOUT)
        poll.poll(timeout_seconds * 1000 if timeout_seconds is not None else None)


class UpdateSender:
    """Sends the intermediate messages of one call: coalesced, bounded, without blocking the tool.

    Args:
        channel: The connection to the daemon.
        sequence: The call's number.
    """

    def __init__(self, channel: DaemonChannel, sequence: int) -> None:
        self._channel = channel
        self._sequence = sequence
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[Mapping[str, Any], bytes]] = {}
        self._metadata: dict[str, Any] = {}
        self._log: list[bytes] = []
        self._log_bytes = 0
        self._lost = 0
        self._sent_at = 0.0
        self._scheduled = False
        self._thread: threading.Thread | None = None  # the last one, also after it has ended
        self._finished = threading.Event()

    def tell(self, kind: str, header: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send a message now or within 20 ms; a newer update or progress replaces a pending one.

        Args:
            kind: "update", "progress", "metadata" or "log".
            header: The fields of the message.
            payload: Its payload; empty by default.
        """
        with self._lock:
            if kind == "metadata":
                self._merge_metadata(header, payload)
            elif kind == "log":
                self._keep_log(header)
            elif len(payload) <= UPDATE_BYTES_MAX:
                self._newest[kind] = (header, payload)
            else:
                self._keep_log(
                    {"level": "warning", "text": f"an {kind} of {len(payload)} bytes was dropped: too large"}
                )
            if self._scheduled or self._finished.is_set():
                return
            now = time.monotonic()
            if now - self._sent_at >= TELL_INTERVAL_SECONDS and self._offer():
                self._sent_at = now
                return
            self._scheduled = True
            self._thread = threading.Thread(target=self._send_later, name="toolcell-teller", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Send everything that is pending now, before any later message."""
        with self._lock:
            self._finished.set()
            self._send_pending(self._send)
            self._channel.flush()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _send_later(self) -> None:
        while not self._finished.wait(TELL_INTERVAL_SECONDS):
            self._channel.flush()
            self._channel.wait_writable(1)
            with self._lock:
                if self._offer():
                    self._sent_at = time.monotonic()
                    self._scheduled = False
                    return

    def _offer(self) -> bool:
        return self._send_pending(self._channel.offer) and self._channel.whole

    def _send(self, frame: bytes) -> bool:
        self._channel.send_frames((frame,))
        return True

    def _send_pending(self, send: Callable[[bytes], bool]) -> bool:
        """Send everything that is pending with `send`; False as soon as that sends no more."""
        if self._metadata:
            metadata = json.dumps(self._metadata).encode()
            if not send(encode(MetadataMessage(seq=self._sequence), metadata)):
                return False
            self._metadata = {}
        while self._log or self._lost:
            part = b",".join(self._log[:RECORDS_MAX])
            message = LogMessage(seq=self._sequence, lost=min(self._lost, LOST_MAX))
            if not send(encode(message, b"[%b]" % part)):
                return False
            del self._log[:RECORDS_MAX]
            self._log_bytes -= len(part) + bool(part)  # and a comma
            self._lost = 0
        for kind, (header, payload) in list(self._newest.items()):
            message_type = UpdateMessage if kind == "update" else ProgressMessage
            if not send(encode(message_type(seq=self._sequence, **header), payload)):
                return False
            del self._newest[kind]
        return True

    def _merge_metadata(self, header: Mapping[str, Any], payload: bytes) -> None:
        merged = dict(self._metadata)
        if header.get("title") is not None:
            merged["title"] = header["title"]
        if payload:
            merged.update(json.loads(payload))
        if len(json.dumps(merged)) <= METADATA_BYTES_MAX:
            self._metadata = merged
        else:
            self._keep_log({"level": "warning", "text": "metadata was dropped: too large"})

    def _keep_log(self, record: Mapping[str, Any]) -> None:
        encoded = json.dumps(record).encode()
        size = len(encoded) + 1  # and a comma
        if len(self._log) >= PENDING_MAX or self._log_bytes + size > LOG_BYTES_MAX:
            self._lost += 1
            return
        self._log.append(encoded)
        self._log_bytes += size
