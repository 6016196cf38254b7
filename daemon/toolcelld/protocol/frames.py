"""Frames on the socketpair between the daemon and a worker, and their codec. No I/O.

A frame is two big-endian 32-bit lengths, a JSON header and payload bytes:

    +----------------+-----------------+------------------+-----------------+
    | header length  | payload length  | header (JSON)    | payload (bytes) |
    +----------------+-----------------+------------------+-----------------+

The header is an object with a string `type`. Bulk never stands in the header. A message whose
payload is longer than one frame says its whole `size`; the rest follows in frames of type
`chunk`. Both lengths are bounded, so a receiver never buffers more than one frame. A frame
that breaks a rule raises `FrameError`: its sender is at fault and its channel is closed, as
nothing behind a broken length can be trusted.

docs/worker-protocol.md describes the messages and has test vectors. Why not protobuf or gRPC:
a worker must never import grpc (it is forked), and a runtime in another language needs
nothing but a JSON parser to take part.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from pydantic_core import PydanticSerializationError, from_json, to_json

__all__ = ["HEADER_BYTES_MAX", "PAYLOAD_BYTES_MAX", "Decoder", "Frame", "FrameError", "encode", "split"]

LENGTHS: Final = struct.Struct(">II")

HEADER_BYTES_MAX: Final = 64 * 1024
"""Identifiers, counters and one-line messages; a thousand times what a header usually has."""

PAYLOAD_BYTES_MAX: Final = 256 * 1024
"""One read of a socket: large enough that 16 MiB are 64 frames, small enough to be fair between calls."""


class FrameError(Exception):
    """The other side sent something that is not a frame."""


class Frame(NamedTuple):
    """One frame: its header, which has a string `type`, and its payload."""

    header: dict[str, Any]
    payload: bytes


def _refuse_constant(name: str) -> NoReturn:
    raise FrameError(f"{name} is not JSON")


# Half a surrogate pair is no Unicode, but Python's strings have it and JSON has an escape for it. pydantic's codec takes
# none; it takes a third of the time of this one, for everything else, and both stand in the road of every call.
_encode_any: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=dataclasses.asdict
).encode
_decode_any: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode


def encode(header: Mapping[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """The bytes of one frame; raises `FrameError` when it is over a bound."""
    try:
        text = to_json(header)
    except PydanticSerializationError:
        text = _encode_any(header).encode("ascii")
    if len(text) > HEADER_BYTES_MAX:
        raise FrameError(f"header of {len(text)} bytes, more than {HEADER_BYTES_MAX}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise FrameError(f"payload of {len(payload)} bytes, more than {PAYLOAD_BYTES_MAX}")
    return b"".join((LENGTHS.pack(len(text), len(payload)), text, payload))


def split(header: Mapping[str, Any], payload: bytes) -> Iterator[bytes]:
    """The frames of one message: one if the payload fits, else the first with `size` and chunks behind it."""
    if len(payload) <= PAYLOAD_BYTES_MAX:
        yield encode(header, payload)
        return
    view = memoryview(payload)
    yield encode({**header, "size": len(payload)}, view[:PAYLOAD_BYTES_MAX])
    for start in range(PAYLOAD_BYTES_MAX, len(payload), PAYLOAD_BYTES_MAX):
        yield encode({"type": "chunk"}, view[start : start + PAYLOAD_BYTES_MAX])


class Decoder:
    """Takes bytes as they come and gives whole frames; holds less than one frame."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """The frames that are complete now; raises `FrameError` at the first that breaks a rule."""
        buffer = self._buffer
        buffer += data
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
            frames.append(Frame(_header(bytes(buffer[body:payload])), bytes(buffer[payload:after])))
            start = after
        del buffer[:start]
        return frames

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has only begun."""
        return len(self._buffer)


def _header(text: bytes) -> dict[str, Any]:
    header: object
    try:
        header = from_json(text, allow_inf_nan=False)
    except ValueError:
        header = _decoded(text)
    if not isinstance(header, dict) or not isinstance(header.get("type"), str):  # pyright: ignore[reportUnknownMemberType]  # it is being found out what it is
        raise FrameError("header is not an object with a type")
    return header  # pyright: ignore[reportUnknownVariableType]  # JSON objects have string keys


def _decoded(text: bytes) -> object:
    try:
        return _decode_any(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"header is not JSON: {str(error)[:100]}") from None
