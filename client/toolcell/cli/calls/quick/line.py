"""A connection to the daemon with one Attach stream, on a socket that one loop waits for.

As the stream of the client's sessions it puts results together that come in parts, and acknowledges what it has read, after
a while or after so many bytes. Unlike that one it ends with its connection.
"""

from __future__ import annotations

import time

from toolcell.client._grpc import wire
from toolcell.client._grpc.access import HEALTH
from toolcell.client._grpc.http2 import Http2Connection, Message, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    OnEvent: TypeAlias = Callable[[str, Any, bytes], None]

ATTACH = "/toolcell.v1.ToolCell/Attach"
READ_BYTES = 256 * 1024
BODY_BYTES_MAX = 32 * 1024 * 1024  # as in `receive_buffer`
ACKNOWLEDGE_AFTER_SECONDS = 0.5  # as in `stream`
ACKNOWLEDGE_AFTER_BYTES = 256 * 1024
INTERNAL = 13
_EVENTS = (
    "outcome", "update", "chunk", "log", "progress", "request", "refused",
    "ask", "started", "metadata", "gap", "welcome", "catalog",
)  # fmt: skip


class Line:
    """A connection with one stream.

    Args:
        address: The path of the daemon's socket.
        token: The token that the daemon wants to see.
        pipe: A descriptor that `turn` waits for as well.

    Attributes:
        address: The path.
        heard: Whether the daemon has answered anything.
        ended: How the stream ended; None while it is open.
    """

    def __init__(self, address: str, token: str, pipe: int) -> None:
        import _socket  # `socket` loads selectors and enum
        import select

        self.address = address
        self.heard = False
        self.ended: Status | None = None
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._readable, self._writable = select.POLLIN, select.POLLOUT
        self._poll.register(pipe, self._readable)
        self._token = token
        self._http2 = Http2Connection(token)
        self._stream = 0
        self._out = b""
        self._broken = ""  # why the socket cannot be written or read
        self._last = self._told = 0  # the highest numbers of events that were seen and acknowledged
        self._unacknowledged_bytes = 0
        self._owed_since: float | None = None
        self._head: tuple[str, Any, bytearray] | None = None  # an event whose body continues in chunks

    def open(self) -> None:
        """Connect, and begin the stream. Raises OSError: no daemon, or one whose queue is full."""
        self._socket.connect(self.address)
        self._stream = self._http2.begin(ATTACH)

    def answers(self, seconds: float) -> bool:
        """Whether the daemon answers anything on another connection in that time."""
        from .plan import Unserved
        from .request import ask

        try:
            ask(self.address, self._token, HEALTH, b"", {}, seconds)
        except Unserved:
            return False
        return True

    def close(self) -> None:
        self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, the fields of an AttachRequest, with the next `turn`."""
        self._told = self._dealt_with()
        self._unacknowledged_bytes, self._owed_since = 0, None
        values = {"acknowledged": self._told, **message} if self._told else message
        self._http2.send(self._stream, wire.encode(wire.ATTACH_REQUEST, values))

    def flush(self) -> None:
        """Write what the kernel takes."""
        self._out += self._http2.take()
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:  # what has come is still read
            self._out, self._broken = b"", str(error)

    def await_typing(self, *, on: bool) -> None:
        """Have `turn` wait for stdin as well, or not any more."""
        if on:
            self._poll.register(0, self._readable)
        else:
            self._poll.unregister(0)

    def turn(self, seconds: float | None, on_event: OnEvent) -> set[int]:
        """Write, and wait until something comes.

        Args:
            seconds: The longest wait; None for none.
            on_event: Called with the field of the event's `oneof`, the event, and the whole body of an outcome.

        Returns:
            The descriptors that can be read.
        """
        self.flush()
        if self._owed_since is not None:
            due = max(0.0, self._owed_since + ACKNOWLEDGE_AFTER_SECONDS - time.monotonic())
            seconds = due if seconds is None else min(seconds, due)
        self._poll.register(self._socket, self._readable | (self._writable if self._out else 0))
        milliseconds = None if seconds is None else int(seconds * 1000) + 1
        ready = {number for number, _ in self._poll.poll(milliseconds)}
        if self._socket.fileno() in ready:
            self._read(on_event)
        self._acknowledge()
        return ready

    def _acknowledge(self) -> None:
        since = self._owed_since
        if since is not None and (
            self._unacknowledged_bytes >= ACKNOWLEDGE_AFTER_BYTES
            or time.monotonic() >= since + ACKNOWLEDGE_AFTER_SECONDS
        ):
            self._unacknowledged_bytes, self._owed_since = 0, None
            if self._dealt_with() > self._told:
                self.send({})

    def _dealt_with(self) -> int:
        return self._head[1].number - 1 if self._head is not None else self._last

    def _read(self, on_event: OnEvent) -> None:
        data = b""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken = str(error)
        if not data:
            for end in self._http2.lose(self._broken or "it has closed the connection"):
                self.ended = end.status
            return
        self.heard = True
        for event in self._http2.receive(data):
            if not isinstance(event, Message):
                self.ended = event.status
                return
            try:
                self._take(event.data, on_event)
            except wire.Malformed as error:
                self.ended = Status(INTERNAL, f"The daemon sent what cannot be read: {error}.")
                return

    def _take(self, data: bytes, on_event: OnEvent) -> None:
        self._unacknowledged_bytes += len(data)
        if self._owed_since is None:
            self._owed_since = time.monotonic()
        for event in wire.decode(wire.ATTACH_RESPONSE, data).events:
            if event.number:
                if event.number <= self._last:
                    continue
                self._last = event.number
            sort = next((name for name in _EVENTS if name in event.has), "")
            if sort == "chunk":
                self._chunk(event.chunk, on_event)
                continue
            body = b""
            if sort in ("outcome", "update"):
                head = event.outcome if sort == "outcome" else event.update
                body = event.outcome.body if sort == "outcome" else b""
                self._head = (sort, event, bytearray(body)) if head.more else None
                if head.more:
                    continue
            on_event(sort, event, body)

    def _chunk(self, chunk: Any, on_event: OnEvent) -> None:
        if self._head is None:
            return
        sort, event, body = self._head
        if sort == "outcome" and len(body) + len(chunk.data) <= BODY_BYTES_MAX:
            body += chunk.data
        if chunk.last:
            self._head = None
            on_event(sort, event, bytes(body))
