"""The frame codec: the vectors of the manual, and properties of all other input."""

from __future__ import annotations

import itertools
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.protocol.frames import (
    HEADER_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Decoder,
    Frame,
    FrameError,
    encode,
    header_of,
    split,
)
from toolcelld.protocol.messages import ReplyMessage

VECTORS: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "docs/vectors/frames.json").read_text(encoding="utf-8")
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.dictionaries(st.text(), VALUES, max_size=4).flatmap(
    lambda rest: st.text().map(lambda kind: {**rest, "type": kind})
)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=300)), max_size=5)


def vector_bytes(vector: dict[str, Any]) -> bytes:
    then = vector.get("then", {"hex": "", "times": 0})
    return bytes.fromhex(vector["hex"]) + bytes.fromhex(then["hex"]) * int(then["times"])


def names(vectors: list[dict[str, Any]]) -> list[str]:
    return [vector["name"] for vector in vectors]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place for place in at if place < len(data))})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=names(VECTORS["frames"]))
def test_a_vector_of_the_manual_decodes_to_its_frames(vector: dict[str, Any]) -> None:
    expected = [Frame(frame["header"], bytes.fromhex(frame["payload"])) for frame in vector["frames"]]
    assert Decoder().feed(vector_bytes(vector)) == expected
    if vector["canonical"]:
        assert b"".join(itertools.starmap(encode, expected)) == vector_bytes(vector)


@pytest.mark.parametrize("vector", VECTORS["incomplete"], ids=names(VECTORS["incomplete"]))
def test_an_incomplete_vector_yields_no_frame(vector: dict[str, Any]) -> None:
    decoder = Decoder()
    assert decoder.feed(vector_bytes(vector)) == []
    assert decoder.pending_bytes == vector["pending_bytes"]


@pytest.mark.parametrize("vector", VECTORS["broken"], ids=names(VECTORS["broken"]))
def test_an_invalid_vector_raises_its_error(vector: dict[str, Any]) -> None:
    with pytest.raises(FrameError) as caught:
        Decoder().feed(vector_bytes(vector))
    assert vector["error"] in str(caught.value)


@given(FRAMES, st.lists(st.integers(0, 3000), max_size=8))
def test_frames_do_not_depend_on_how_the_bytes_are_split(
    frames: list[tuple[dict[str, Any], bytes]], at: list[int]
) -> None:
    data = b"".join(encode(header, payload) for header, payload in frames)
    decoder = Decoder()
    got = [frame for piece in cut(data, at) for frame in decoder.feed(piece)]
    assert got == [Frame(header, payload) for header, payload in frames]
    assert decoder.pending_bytes == 0


def framed(header: bytes, payload: bytes) -> bytes:
    return struct.pack(">II", len(header), len(payload)) + header + payload


JSONS = VALUES.map(lambda value: json.dumps(value).encode())


@given(st.binary() | st.builds(framed, st.binary() | JSONS, st.binary()))
def test_any_bytes_decode_to_frames_or_raise_a_frame_error(data: bytes) -> None:
    try:
        frames = Decoder().feed(data)
    except FrameError:
        return
    assert all(isinstance(frame.header["type"], str) for frame in frames)


def test_a_lone_surrogate_in_a_header_is_preserved() -> None:
    header = {"type": "progress", "message": "a\ud800b"}
    assert Decoder().feed(encode(header)) == [Frame(header, b"")]


@pytest.mark.parametrize("message", ["no", None, "a\ud800b"])
def test_a_message_is_a_header_without_what_is_none(message: str | None) -> None:
    reply = ReplyMessage(ask=1, message=cast("str", message))
    fields = {"type": "reply", "ask": 1, "message": message}
    expected = {name: value for name, value in fields.items() if value is not None}
    assert header_of(reply) == expected
    assert Decoder().feed(encode(reply)) == [Frame(expected, b"")]
    large = bytes(PAYLOAD_BYTES_MAX + 1)
    first, *_ = Decoder().feed(b"".join(split(reply, large)))
    assert first.header == {**expected, "size": len(large)}


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"9" * 5000, b"[" * 5000, b'"\xff"'])
def test_invalid_json_is_no_header(text: bytes) -> None:
    header = b'{"type":"x","y":' + text + b"}"
    with pytest.raises(FrameError, match="is not JSON"):
        Decoder().feed(len(header).to_bytes(4, "big") + bytes(4) + header)


def test_an_error_message_quotes_a_bounded_part_of_the_input() -> None:
    with pytest.raises(FrameError) as caught:
        Decoder().feed(framed(b"x" * HEADER_BYTES_MAX, b""))
    assert len(str(caught.value)) < 200


def test_a_header_at_its_bound_passes_and_one_byte_more_does_not() -> None:
    room = HEADER_BYTES_MAX - len(encode({"type": ""})) + struct.calcsize(">II")
    frame = encode({"type": "x" * room})
    assert Decoder().feed(frame)[0].header["type"] == "x" * room
    with pytest.raises(FrameError):
        encode({"type": "x" * (room + 1)})


def test_a_payload_at_its_bound_passes_and_one_byte_more_does_not() -> None:
    payload = bytes(PAYLOAD_BYTES_MAX)
    assert Decoder().feed(encode({"type": "chunk"}, payload))[0].payload == payload
    with pytest.raises(FrameError):
        encode({"type": "chunk"}, payload + b"x")


def test_a_decoder_buffers_less_than_one_frame() -> None:
    frame = encode({"type": "chunk"}, bytes(PAYLOAD_BYTES_MAX))
    decoder = Decoder()
    tracemalloc.start()
    try:
        for _ in range(20):
            for start in range(0, len(frame), 8192):
                decoder.feed(frame[start : start + 8192])
                assert decoder.pending_bytes < len(frame)
        assert tracemalloc.get_traced_memory()[0] < 2 * len(frame)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 3 * PAYLOAD_BYTES_MAX])
def test_a_split_message_has_its_size_and_the_rest_in_chunks(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    decoder = Decoder()
    first, *rest = [frame for data in split({"type": "load"}, payload) for frame in decoder.feed(data)]
    assert first.header == ({"type": "load", "size": size} if rest else {"type": "load"})
    assert [frame.header for frame in rest] == [{"type": "chunk"}] * len(rest)
    assert b"".join(frame.payload for frame in (first, *rest)) == payload
