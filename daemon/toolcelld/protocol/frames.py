"""Frames on the socketpair between the daemon and a worker, and their codec. No I/O.

A frame is two big-endian 32-bit lengths, a JSON header and payload bytes:

    +----------------+-----------------+------------------+-----------------+
    | header length  | payload length  | header (JSON)    | payload (bytes) |
    +----------------+-----------------+------------------+-----------------+

The header is an object with a string `type`; bulk data is in the payload. A message whose payload
is longer than one frame has the total `size` in its header, and the remaining bytes follow in frames
of type `chunk`. Both lengths are bounded, so a receiver never buffers more than one frame. A frame
that breaks a rule raises `FrameError`, and the receiver closes the channel, because it cannot find
the next frame after a wrong length.

docs/worker-protocol.md has their order, and docs/vectors test vectors. The protocol is neither protobuf
nor gRPC: a worker must not import grpc, because it is forked, and a worker in another language needs
only a JSON parser.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from pydantic_core import PydanticSerializationError, from_json, to_json

LENGTHS: Final = struct.Struct(">II")

HEADER_BYTES_MAX: Final = 64 * 1024
"""A header has identifiers, counters and one-line messages; the usual size is a thousandth of this."""

PAYLOAD_BYTES_MAX: Final = 256 * 1024
"""The data of one socket read: 16 MiB take 64 frames, and one call does not block the others for long."""


class FrameError(Exception):
    """The peer sent bytes that are not a valid frame."""


class Frame(NamedTuple):
    """One frame: its header, which has a string `type`, and its payload."""

    header: dict[str, Any]
    payload: bytes


def _refuse_constant(name: str) -> NoReturn:
    raise FrameError(f"{name} is not JSON")


def header_of(message: Any) -> dict[str, Any]:
    """Return a message as the header of a frame, without the fields that are None."""
    return {name: value for name in message.__slots__ if (value := getattr(message, name)) is not None}


# The standard library's codec handles lone surrogates, which Python strings can have and JSON can escape. pydantic's codec
# refuses them, but takes a third of the time, and every call encodes and decodes headers. So this one is the fallback.
_encode_any: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=dataclasses.asdict
).encode
_decode_any: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode


def encode(header: Any, payload: bytes | memoryview = b"") -> bytes:
    """Return the bytes of one frame.

    Args:
        header: A mapping with a string `type`, or a message of `messages`, of which fields that are None are left out;
            at most `HEADER_BYTES_MAX` as JSON.
        payload: At most `PAYLOAD_BYTES_MAX`; empty by default.

    Raises:
        FrameError: The header or the payload is over its bound.
    """
    fields: dict[str, Any] = header
    if not isinstance(header, dict):
        fields = {}
        for name in header.__slots__:  # written out: a call of `header_of` costs as much as the JSON
            if (value := getattr(header, name)) is not None:
                fields[name] = value
    try:
        text = to_json(fields)
    except PydanticSerializationError:
        text = _encode_any(fields).encode("ascii")
    if len(text) > HEADER_BYTES_MAX:
        raise FrameError(f"header of {len(text)} bytes, more than {HEADER_BYTES_MAX}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise FrameError(f"payload of {len(payload)} bytes, more than {PAYLOAD_BYTES_MAX}")
    return b"".join((LENGTHS.pack(len(text), len(payload)), text, payload))


def split(header: Any, payload: bytes = b"") -> Iterator[bytes]:
    """Yield the frames of one message: one if the payload fits, else a first frame with `size`, and its chunks."""
    if len(payload) <= PAYLOAD_BYTES_MAX:
        yield encode(header, payload)
        return
    view = memoryview(payload)
    fields = header_of(header) if hasattr(header, "__slots__") else header
    yield encode({**fields, "size": len(payload)}, view[:PAYLOAD_BYTES_MAX])
    for start in range(PAYLOAD_BYTES_MAX, len(payload), PAYLOAD_BYTES_MAX):
        yield encode({"type": "chunk"}, view[start : start + PAYLOAD_BYTES_MAX])


class Decoder:
    """Decodes a stream of bytes into frames; buffers less than one frame."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Add bytes, and return the frames that are complete now.

        Raises:
            FrameError: A frame breaks a rule; the decoder must not be used any more.
        """
        buffer: bytes | bytearray = self._buffer
        if buffer:
            buffer += data
        else:  # nearly always, and then nothing is kept
            buffer = bytes(data)
        frames: list[Frame] = []
        start, end = 0, len(buffer)
        while end - start >= LENGTHS.size:
            header_bytes, payload_bytes = LENGTHS.unpack_from(buffer, start)
            if header_bytes > HEADER_BYTES_MAX or payload_bytes > PAYLOAD_BYTES_MAX:
                raise FrameError(f"lengths {header_bytes} and {payload_bytes} are over the bounds")
            body = start + LENGTHS.size
            payload = body + header_bytes
            after = payload + payload_bytes
            if after > end:
                break
            text = buffer[body:payload]
            header: Any
            try:
                header = from_json(text, allow_inf_nan=False)
            except ValueError:
                header = _decoded(text)
            if not isinstance(header, dict) or not isinstance(header.get("type"), str):  # pyright: ignore[reportUnknownMemberType]  # this is the check of its type
                raise FrameError("header is not an object with a type")
            frames.append(Frame(header, bytes(buffer[payload:after])))  # pyright: ignore[reportUnknownArgumentType]  # JSON objects have string keys
            start = after
        if buffer is self._buffer:
            del self._buffer[:start]
        elif start < end:
            self._buffer += buffer[start:]
        return frames

    @property
    def pending_bytes(self) -> int:
        """The number of buffered bytes of an incomplete frame."""
        return len(self._buffer)


def _decoded(text: bytes | bytearray) -> object:
    try:
        return _decode_any(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"header is not JSON: {str(error)[:100]}") from None
