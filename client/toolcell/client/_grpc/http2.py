"""gRPC over HTTP/2 (RFC 9113), the client's half, without I/O: bytes of the daemon in, messages and ends of RPCs out.

It is for one peer, a daemon on a unix socket of the user's own, or behind TLS of its transport: no proxies, no
compression, no priorities, no pushes. What the peer may do by the two specifications is handled: windows in both directions, SETTINGS at any time, PING,
GOAWAY with streams that go on, RST_STREAM, padding, CONTINUATION, trailers alone. What it may not do ends the connection.

`toolcell call` is a process of its own for each call, so this module imports nothing but what a header block takes when
it must be read, and that only with the end of an RPC: a result is a message and comes before the trailers.
"""

from __future__ import annotations

from _struct import Struct  # `struct` alone would be one more module to import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Event: TypeAlias = "Message | End"
    Events: TypeAlias = "Iterator[Event] | tuple[()] | tuple[Event]"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = Struct(">BHBBI")
"""What a frame begins with: its length, in two parts, its kind, its flags and its stream."""
MESSAGE_FRAME = Struct(">BHBBIBI")
"""That of one with a whole message of gRPC, which begins with whether it is compressed and with its length."""
DATA, HEADERS, _, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACKNOWLEDGED, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 2, 4, 5
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, CANCEL, COMPRESSION_ERROR = 0, 1, 3, 6, 8, 9
REFUSED_STREAM, ENHANCE_YOUR_CALM = 7, 11

FRAME_BYTES_MAX = 16_384
"""RFC 9113, 4.2: what a side may send unless the other allows more. Here it does not."""
WINDOW_BYTES_MAX = 2**31 - 1
FIRST_WINDOW_BYTES = 65_535
WINDOW_BYTES = 4 * 1024 * 1024
"""What the daemon may send before it is read; it retains 1 MiB of a session, and a catalog is larger."""
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""A whole catalog in one message: 1,000 tools with schemas of 64 KiB."""
BLOCK_BYTES_MAX = 64 * 1024
"""Of a header block with its continuations; a refusal names at most some fields. grpcio takes 16 KiB."""
UNREAD_MAX = 16
"""Header blocks that wait to be read with the end of an RPC."""
FRAME_BYTES_SENT_MAX = 1024 * 1024
"""A longer frame gains nothing."""

CANCELLED, UNKNOWN, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 1, 2, 13, 14, 16
_OF_HTTP = {
    "400": INTERNAL,
    "401": UNAUTHENTICATED,
    "403": 7,
    "404": 12,
    "429": 14,
    "502": 14,
    "503": 14,
    "504": 14,
}
"""gRPC's codes for a peer that answers without a `grpc-status`."""
_OF_RESET = {REFUSED_STREAM: UNAVAILABLE, CANCEL: CANCELLED, ENHANCE_YOUR_CALM: 8}
_SIZES = {RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""Of the frames that have one size."""


class Status:
    """How an RPC ended: a number of `grpc.StatusCode`, the message, and a serialized `google.rpc.Status`, b"" if none."""

    __slots__ = ("code", "details", "message")

    def __init__(self, code: int, message: str = "", details: bytes = b"") -> None:
        self.code = code
        self.message = message
        self.details = details


class Message:
    """A message of an RPC."""

    __slots__ = ("data", "stream")

    def __init__(self, stream: int, data: bytes) -> None:
        self.stream = stream
        self.data = data


class End:
    """The end of an RPC, and how it ended."""

    __slots__ = ("status", "stream")

    def __init__(self, stream: int, status: Status) -> None:
        self.stream = stream
        self.status = status


class Violation(Exception):
    """The peer broke the protocol; the number is an error code of RFC 9113, 7."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Rpc:
    __slots__ = ("buffer", "ended_here", "headers", "last_sent", "pending", "received", "window")

    def __init__(self, window: int) -> None:
        self.window = window  # what may be sent
        self.pending = bytearray()  # what waits for it
        self.last_sent = False  # no message follows `pending`
        self.ended_here = False  # the peer knows that nothing follows
        self.received = 0  # since the last WINDOW_UPDATE
        self.buffer = bytearray()  # the beginning of a message
        self.headers: dict[bytes, bytes] = {}


class Http2Connection:
    """A connection and its RPCs, each of which shows the token in its scheme. After each call, `take` what is to be sent."""

    def __init__(self, token: str, scheme: str = "Bearer") -> None:
        self.closed: Status | None = None  # why no RPC can begin any more
        self._authorization = b"\x1f\x08" + _string(f"{scheme} {token}".encode("ascii"))  # never indexed
        self._rpcs: dict[int, _Rpc] = {}
        self._next = 1
        self.unsent = bytearray(PREFACE)  # what `take` takes
        self._window = FIRST_WINDOW_BYTES
        self._first_window = FIRST_WINDOW_BYTES  # of the next RPC
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._in = b""  # the beginning of a frame
        self._began = False  # the peer's SETTINGS have come
        self._received = 0
        self._block: bytearray | None = None  # of headers that go on in a CONTINUATION
        self._block_stream = 0
        self._block_ends = False
        self._unread: list[tuple[int, bytes]] = []  # header blocks, which are read in order
        self._decode: Callable[[bytes, bool], Any] | None = None
        settings = b"".join(
            name.to_bytes(2, "big") + value.to_bytes(4, "big")
            for name, value in ((ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_BYTES))
        )
        self._write(SETTINGS, 0, 0, settings)
        self._write(WINDOW_UPDATE, 0, 0, (WINDOW_BYTES - FIRST_WINDOW_BYTES).to_bytes(4, "big"))

    # What goes out

    def take(self) -> bytearray:
        """Return what is to be sent, and forget it."""
        out, self.unsent = self.unsent, bytearray()
        return out

    def begin(self, method: str, timeout_seconds: float | None = None) -> int:
        """Begin an RPC, while `closed` is None.

        Args:
            method: Its path, such as "/toolcell.v1.ToolCell/Attach".
            timeout_seconds: The deadline that the daemon is told; default: none.

        Returns:
            The number of its stream.
        """
        stream = self._next
        self._next += 2
        block = b"\x83\x86\x04" + _string(method.encode("ascii")) + _REQUEST + self._authorization
        if timeout_seconds is not None:
            milliseconds = max(1, min(int(timeout_seconds * 1000), 99_999_999))
            block += _literal(b"grpc-timeout", b"%dm" % milliseconds)
        self._rpcs[stream] = _Rpc(self._first_window)
        self._write(HEADERS, END_HEADERS, stream, block)
        return stream

    def send(self, stream: int, message: bytes) -> bool:
        """Send a message as far as the peer's windows allow, and return whether some of it waits for them.

        Has no effect once the RPC has ended.
        """
        rpc = self._rpcs.get(stream)
        if rpc is None or rpc.last_sent:
            return False
        length = len(message)
        size = length + 5
        if not rpc.pending and size <= self._window and size <= rpc.window and size <= self._frame_bytes_max:
            self._window -= size
            rpc.window -= size
            self.unsent += MESSAGE_FRAME.pack(size >> 16, size & 0xFFFF, DATA, 0, stream, 0, length)
            self.unsent += message
            return False
        rpc.pending += b"\x00%b%b" % (length.to_bytes(4, "big"), message)
        self._flush(stream, rpc)
        return len(rpc.pending) > 0

    def end_messages(self, stream: int) -> None:
        """Say that no message follows."""
        if (rpc := self._rpcs.get(stream)) is not None and not rpc.last_sent:
            rpc.last_sent = True
            self._flush(stream, rpc)

    def cancel(self, stream: int) -> None:
        """Give an RPC up; nothing is reported of it any more."""
        if self._rpcs.pop(stream, None) is not None:
            self._write(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._write(PING, 0, 0, bytes(8))

    def waiting_bytes(self, stream: int) -> int:
        """Return how many bytes of an RPC wait for the peer's windows."""
        rpc = self._rpcs.get(stream)
        return len(rpc.pending) if rpc is not None else 0

    def _flush(self, stream: int, rpc: _Rpc) -> None:
        pending = rpc.pending
        while pending:
            size = min(len(pending), self._window, rpc.window, self._frame_bytes_max)
            if size <= 0:
                return
            self._window -= size
            rpc.window -= size
            self._write(DATA, 0, stream, bytes(pending[:size]))
            del pending[:size]
        if rpc.last_sent and not rpc.ended_here:
            rpc.ended_here = True
            self._write(DATA, END_STREAM, stream, b"")

    def _flush_all(self) -> None:
        for stream, rpc in self._rpcs.items():
            if rpc.pending:
                self._flush(stream, rpc)

    def _write(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self.unsent += FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, stream)
        self.unsent += payload

    # What comes in

    def receive(self, data: bytes | memoryview) -> Iterator[Event]:
        """Take what the peer has sent, and yield what it means; a peer that breaks the protocol ends every RPC.

        What follows an event is read when the next one is asked for, so a caller that has its result need not go on.
        """
        came = self._in + data
        size = len(came)
        at = 0
        try:
            while (begin := at + 9) <= size:
                high, low, kind, flags, stream = FRAME.unpack_from(came, at)
                length = high << 16 | low
                if length > FRAME_BYTES_MAX:
                    raise Violation(FRAME_SIZE_ERROR, f"it sent a frame of {length} bytes")
                if begin + length > size:
                    break
                at = begin + length
                if events := self._frame(kind, flags, stream & WINDOW_BYTES_MAX, came[begin:at]):
                    yield from events
        except Violation as violation:
            self._write(GOAWAY, 0, 0, bytes(4) + violation.code.to_bytes(4, "big"))
            at = size
            yield from self.lose(f"The daemon broke the protocol HTTP/2: {violation}.", INTERNAL)
        finally:
            self._in = came[at:]

    def lose(self, why: str, code: int = UNAVAILABLE) -> Iterator[End]:
        """Take note that the connection is no more, and yield the ends of its RPCs."""
        self.closed = self.closed or Status(code, why)
        lost, self._rpcs = self._rpcs, {}
        for stream in lost:
            yield End(stream, Status(code, why))

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> Events:
        if self._block is not None and (kind, stream) != (CONTINUATION, self._block_stream):
            raise Violation(PROTOCOL_ERROR, "it interrupted a header block")
        if not self._began and kind != SETTINGS:
            raise Violation(PROTOCOL_ERROR, "it did not begin with its settings")
        if kind == DATA:
            return self._data(flags, stream, payload)
        if kind in _SIZES:
            if (size := _SIZES[kind]) != len(payload):
                raise Violation(FRAME_SIZE_ERROR, f"it sent {len(payload)} bytes where {size} belong")
            number = int.from_bytes(payload, "big")
            if kind == WINDOW_UPDATE:
                self._window_update(stream, number & WINDOW_BYTES_MAX)
            elif kind == RST_STREAM:
                return self._reset(stream, number)
            elif not flags & ACKNOWLEDGED:
                self._write(PING, ACKNOWLEDGED, 0, payload)
        elif kind in (HEADERS, CONTINUATION):
            return self._header_block(kind, flags, stream, payload)
        elif kind == SETTINGS:
            self._settings(flags, payload)
        elif kind == GOAWAY:
            return self._go_away(payload)
        elif kind == PUSH_PROMISE:
            raise Violation(PROTOCOL_ERROR, "it pushed what was not asked for")
        return ()

    def _data(self, flags: int, stream: int, payload: bytes) -> Events:
        size = len(payload)
        self._received += size
        if self._received > WINDOW_BYTES // 2:
            self._write(WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big"))
            self._received = 0
        rpc = self._rpcs.get(stream) or self._rpc(stream)
        if rpc is None:
            return ()
        rpc.received += size
        if rpc.received > WINDOW_BYTES // 2:
            self._write(WINDOW_UPDATE, 0, stream, rpc.received.to_bytes(4, "big"))
            rpc.received = 0
        if (
            not (flags or rpc.buffer)
            and size >= 5
            and payload[0] == 0
            and int.from_bytes(payload[1:5], "big") == size - 5
        ):  # one message, as in most frames
            return (Message(stream, payload[5:]),)
        return self._messages(flags, stream, rpc, payload)

    def _messages(self, flags: int, stream: int, rpc: _Rpc, payload: bytes) -> Iterator[Event]:
        buffer = rpc.buffer
        buffer += _unpadded(payload) if flags & PADDED else payload
        while len(buffer) >= 5:
            length = int.from_bytes(buffer[1:5], "big")
            if buffer[0] or length > MESSAGE_BYTES_MAX:
                what = "a compressed message" if buffer[0] else f"a message of {length} bytes"
                yield from self._over(stream, Status(INTERNAL, f"The daemon sent {what}."), CANCEL)
                return
            if len(buffer) < 5 + length:
                break
            message = bytes(buffer[5 : 5 + length])
            del buffer[: 5 + length]
            yield Message(stream, message)
        if flags & END_STREAM:
            yield from self._over(stream, Status(INTERNAL, "The daemon ended the stream without a status."))

    def _header_block(self, kind: int, flags: int, stream: int, payload: bytes) -> Iterator[Event]:
        if kind == HEADERS:
            self._rpc(stream)
            if flags & PADDED:
                payload = _unpadded(payload)
            if flags & HAS_PRIORITY:
                payload = payload[5:]
            self._block, self._block_stream = bytearray(), stream
            self._block_ends = bool(flags & END_STREAM)
        elif self._block is None or not payload:
            raise Violation(PROTOCOL_ERROR, "it continued nothing, or by nothing")
        block = self._block
        assert block is not None
        block += payload
        if len(block) > BLOCK_BYTES_MAX:
            raise Violation(ENHANCE_YOUR_CALM, f"it sent headers of more than {BLOCK_BYTES_MAX} bytes")
        if flags & END_HEADERS:
            self._block = None
            self._unread.append((stream, bytes(block)))
            if self._block_ends or len(self._unread) > UNREAD_MAX:
                self._read_headers()
            if self._block_ends and (rpc := self._rpcs.get(stream)) is not None:
                within = Status(INTERNAL, "The daemon ended the stream within a message.")
                yield from self._over(stream, within if rpc.buffer else _status(rpc.headers))

    def _read_headers(self) -> None:
        import hpack

        if self._decode is None:
            self._decode = hpack.Decoder(max_header_list_size=BLOCK_BYTES_MAX).decode
        unread, self._unread = self._unread, []
        for stream, block in unread:
            try:
                headers = self._decode(block, True)
            except hpack.HPACKError as error:
                raise Violation(COMPRESSION_ERROR, f"its headers cannot be read, {error}") from error
            if (rpc := self._rpcs.get(stream)) is not None:
                rpc.headers.update(headers)

    def _reset(self, stream: int, error: int) -> Iterator[Event]:
        if (rpc := self._rpc(stream)) is not None:
            rpc.ended_here = True
            code = _OF_RESET.get(error, INTERNAL)
            yield from self._over(
                stream, Status(code, f"The daemon gave the stream up (error {error} of HTTP/2).")
            )

    def _settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6:
            raise Violation(FRAME_SIZE_ERROR, "it cut its settings")
        self._began = True
        if flags & ACKNOWLEDGED:
            return
        for at in range(0, len(payload), 6):
            name, value = (
                int.from_bytes(payload[at : at + 2], "big"),
                int.from_bytes(payload[at + 2 : at + 6], "big"),
            )
            if name == INITIAL_WINDOW_SIZE:
                for rpc in self._rpcs.values():
                    rpc.window += value - self._first_window
                self._first_window = value
            elif name == MAX_FRAME_SIZE:
                self._frame_bytes_max = max(FRAME_BYTES_MAX, min(value, FRAME_BYTES_SENT_MAX))
        self._write(SETTINGS, ACKNOWLEDGED, 0, b"")
        self._flush_all()

    def _window_update(self, stream: int, size: int) -> None:
        if not stream:
            exhausted = self._window <= 0  # else what waits does so for windows of RPCs
            self._window += size
            if exhausted:
                self._flush_all()
        elif (rpc := self._rpcs.get(stream) or self._rpc(stream)) is not None:
            rpc.window += size
            if rpc.pending:
                self._flush(stream, rpc)

    def _go_away(self, payload: bytes) -> Iterator[Event]:
        last = int.from_bytes(payload[:4], "big") & WINDOW_BYTES_MAX
        why = "The daemon takes no more requests on this connection."
        self.closed = self.closed or Status(UNAVAILABLE, why)
        for stream in [stream for stream in self._rpcs if stream > last]:
            self._rpcs.pop(stream)
            yield End(stream, Status(UNAVAILABLE, why))

    def _rpc(self, stream: int) -> _Rpc | None:
        """Return the RPC that a frame is about; None for one that has ended."""
        rpc = self._rpcs.get(stream)
        if rpc is None and (stream % 2 == 0 or stream >= self._next):
            raise Violation(PROTOCOL_ERROR, f"it used stream {stream}, which was not begun")
        return rpc

    def _over(self, stream: int, status: Status, reset: int = NO_ERROR) -> Iterator[Event]:
        rpc = self._rpcs.pop(stream)
        if not rpc.ended_here:
            self._write(RST_STREAM, 0, stream, reset.to_bytes(4, "big"))
        yield End(stream, status)


def _status(headers: dict[bytes, bytes]) -> Status:
    """Return what headers and trailers say of the end of an RPC."""
    code = headers.get(b"grpc-status", b"")
    if not (code.isdigit() and len(code) <= 2):
        http = headers.get(b":status", b"").decode("ascii", "replace")
        return Status(
            _OF_HTTP.get(http, UNKNOWN), f"The daemon answered without a status of gRPC (HTTP {http})."
        )
    details = headers.get(b"grpc-status-details-bin", b"")
    return Status(int(code), _unescaped(headers.get(b"grpc-message", b"")), _of_base64(details))


def _unescaped(text: bytes) -> str:
    """Decode the percent-encoding of `grpc-message`; what is not encoded as it should be stays as it is."""
    from binascii import unhexlify

    first, *rest = text.split(b"%")
    parts = [first]
    for part in rest:
        try:
            parts.append(unhexlify(part[:2]) + part[2:] if len(part) > 1 else b"%" + part)
        except ValueError:
            parts.append(b"%" + part)
    return b"".join(parts).decode("utf-8", "replace")


def _of_base64(text: bytes) -> bytes:
    """Decode a binary header, which comes without padding; b"" for what cannot be decoded."""
    from binascii import Error, a2b_base64

    try:
        return a2b_base64(text + b"=" * (-len(text) % 4))
    except Error:
        return b""


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Violation(PROTOCOL_ERROR, "it sent more padding than there is")
    return payload[1 : len(payload) - payload[0]]


def _string(text: bytes) -> bytes:
    """Encode a string of a header block (RFC 7541, 5.2), without Huffman's code."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    encoded = bytearray((127,))
    while size >= 128:
        encoded.append(size % 128 + 128)
        size //= 128
    encoded.append(size)
    return bytes(encoded) + text


def _literal(name: bytes, value: bytes) -> bytes:
    """Encode a header that enters no table."""
    return b"\x00" + _string(name) + _string(value)


_REQUEST = (
    b"\x01"  # :authority
    + _string(b"localhost")
    + _literal(b"te", b"trailers")
    + _literal(b"content-type", b"application/grpc")
)
