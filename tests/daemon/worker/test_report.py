"""Results assembled from frames of a worker, which may be invalid."""

from __future__ import annotations

import base64
import json
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell._results.normalise import ImageBlock, LinkBlock, Result, TextBlock
from toolcelld.config.load import Config
from toolcelld.config.resolution.settings import Limits, resolve
from toolcelld.output.result import (
    KEPT_BYTES_MAX,
    SHOWN_BYTES_MAX,
    ResultReader,
    short_result,
    shown_update,
    update_body,
)
from toolcelld.output.spill import OutputOrigin, SpillStore
from toolcelld.output.spool import SpooledOutput
from toolcelld.protocol.frames import Decoder, FrameError
from toolcelld.protocol.messages import Kind, MessageError, ResultMessage, from_worker
from toolcelld.worker.calling.report import SHORT_CHARACTERS, Usage, WorkerReport

USAGE = Usage(cpu_seconds=0.5, memory_peak_bytes=4096, threads=0)
SETTINGS = resolve(Config(), "t", {}, "project")


class NoDisk:
    """A spill store that keeps nothing."""

    bytes_per_call = 0
    failure = ""

    def release(self, count_bytes: int) -> None:
        """Nothing was reserved."""


def a_capture(bytes_max: int | None = None, lines_max: int | None = None) -> SpooledOutput:
    origin = OutputOrigin("s-1", b"", "c-1", "t", "result")
    return SpooledOutput(cast("SpillStore", NoDisk()), origin, lines_max=lines_max, bytes_max=bytes_max)


def said(header: dict[str, Any]) -> ResultMessage:
    """The result message with these fields, and defaults for the required ones."""
    whole: dict[str, Any] = {
        "seq": 1,
        "kind": "ok",
        "ran": True,
        "blocks": [],
        "cpu": 0,
        "rss": 0,
        "threads": 0,
    }
    message = from_worker({**whole, **header, "type": "result"})
    assert isinstance(message, ResultMessage)
    return message


def a_reader(header: dict[str, Any], bytes_max: int | None = None) -> ResultReader:
    limits = Limits(output_lines=None, output_bytes=bytes_max)
    return ResultReader(said(header), a_capture(bytes_max), a_capture, limits)


def feed(reader: ResultReader, payload: bytes, at: list[int]) -> None:
    """Feed a payload in pieces, of which some may be empty."""
    places = sorted(place for place in at if place <= len(payload))
    for start, end in zip([0, *places], [*places, len(payload)], strict=True):
        reader.feed(payload[start:end])


TEXTS = st.text(max_size=40)
BLOCKS = st.lists(
    st.builds(TextBlock, TEXTS)
    | st.builds(ImageBlock, st.binary(max_size=40), st.just("image/png"))
    | st.builds(LinkBlock, st.just("file:///a"), st.just("a"), st.just("")),
    max_size=6,
)
DETAILS = st.none() | st.dictionaries(TEXTS, st.integers(0, 5), max_size=3)


def on_the_wire(block: TextBlock | ImageBlock | LinkBlock) -> dict[str, object]:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case ImageBlock(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mime_type": mime_type}
        case LinkBlock(uri, name, _):
            return {"type": "resource_link", "uri": uri, "name": name, "mime_type": None}


@given(BLOCKS, DETAILS, DETAILS, st.lists(st.integers(0, 300), max_size=6))
def test_a_result_does_not_depend_on_how_it_is_split(
    blocks: list[TextBlock | ImageBlock | LinkBlock],
    details: dict[str, int] | None,
    metadata: dict[str, int] | None,
    at: list[int],
) -> None:
    ending = WorkerReport(
        "ok",
        Result(
            tuple(blocks),
            None if details is None else json.dumps(details).encode(),
            None,
            None if metadata is None else json.dumps(metadata).encode(),
        ),
    )
    ((header, payload),) = [frame for data in ending.frames(1, USAGE) for frame in Decoder().feed(data)]
    header["size"] = len(payload)  # as for a payload that is too long for one frame
    reader = a_reader(header)
    feed(reader, payload, at)
    assert reader.missing == 0
    result = reader.finish_now()
    assert result is not None
    assert json.loads(result.body) == {"content": [*map(on_the_wire, blocks)], "details": details}
    assert result.metadata == (metadata or {})


USAGES = st.builds(
    Usage,
    st.integers(0, 10**12).map(lambda microseconds: microseconds / 1e6),
    st.integers(0, 10**12),
    st.integers(0, 9),
    st.sampled_from([(), ("umask",)]),
)
REPORTS = st.builds(
    WorkerReport,
    st.sampled_from(get_args(Kind)),
    st.builds(
        Result,
        st.lists(st.builds(TextBlock, TEXTS), max_size=2).map(tuple),
        st.none() | st.binary(max_size=9),
        st.none() | st.just("a title"),
        st.none() | st.binary(max_size=9),
        fits=st.booleans(),
    ),
    st.booleans(),
    st.sampled_from([None, "disk"]),
    st.sampled_from([None, "", "a host"]),
    st.sampled_from(["", "a module"]),
)


@given(
    st.builds(
        WorkerReport,
        st.just("ok"),
        st.builds(
            Result,
            st.tuples(st.builds(TextBlock, TEXTS)),
            st.none() | st.binary(max_size=9),
            fits=st.booleans(),
        ),
    )
    | REPORTS,
    USAGES,
)
def test_a_plain_result_is_the_message_that_any_other_is(report: WorkerReport, usage: Usage) -> None:
    """The format of a header, and the encoding of a message, are two ways to write the same."""
    written = [frame for data in report.frames(7, usage) for frame in Decoder().feed(data)]
    assert written == [frame for data in report._any_frames(7, usage) for frame in Decoder().feed(data)]


@pytest.mark.parametrize("characters", [0, SHORT_CHARACTERS, SHORT_CHARACTERS + 1])
@pytest.mark.parametrize("character", ["a", "\U0001f600"])
def test_a_plain_result_of_any_length_is_within_the_bounds_of_a_frame(
    character: str, characters: int
) -> None:
    text = character * characters
    report = WorkerReport("ok", Result((TextBlock(text),), b"x" * characters))
    (frame,) = Decoder().feed(b"".join(report.frames(7, USAGE)))
    assert frame.payload == text.encode() + b"x" * characters


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
LENGTHS: st.SearchStrategy[Any] = st.integers(-2, 50) | st.sampled_from([2**40, 2**41, 2**70]) | JSON
TYPES: st.SearchStrategy[Any] = st.sampled_from(["text", "image", "resource_link", "audio"])
EACH: dict[str, st.SearchStrategy[Any]] = {"type": TYPES}
HOSTILE_BLOCKS: st.SearchStrategy[Any] = JSON | st.lists(
    st.fixed_dictionaries(EACH, optional={"bytes": LENGTHS, "mime_type": JSON, "uri": JSON, "name": JSON})
)
NOTHING: dict[str, st.SearchStrategy[Any]] = {}
HOSTILE_HEADERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    NOTHING,
    optional={
        "blocks": HOSTILE_BLOCKS, "details": LENGTHS, "metadata": LENGTHS, "title": JSON, "size": LENGTHS,
    },
)  # fmt: skip


@given(HOSTILE_HEADERS, st.lists(st.binary(max_size=60), max_size=4))
def test_a_hostile_result_is_a_frame_error_or_a_result_that_is_json(
    header: dict[str, Any], payloads: list[bytes]
) -> None:
    try:
        reader = a_reader(header)
        for payload in payloads:
            reader.feed(payload)
    except FrameError:
        return
    if not reader.missing:
        result = reader.finish_now()
        assert result is not None
        assert set(json.loads(result.body)) == {"content", "details"}
        json.dumps(dict(result.metadata), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({"blocks": [{"type": "text", "bytes": 3}]}, b"four"),
        ({"blocks": [{"type": "text", "bytes": 3}]}, b"to"),
        ({"blocks": [{"type": "text", "bytes": 3}], "size": 4}, b"the"),
        ({"blocks": [{"type": "text", "bytes": -1}]}, b""),
        ({"blocks": [{"type": "text", "bytes": 2**41}], "size": 2**41}, b""),
        ({"blocks": [{"type": "audio", "bytes": 1}]}, b"x"),
        ({"blocks": [{"type": "text", "bytes": 0}] * 1001}, b""),
        ({"details": "3"}, b"412"),
        ({"title": 7}, b""),
    ],
)
def test_a_result_whose_lengths_are_wrong_breaks_the_protocol(header: dict[str, Any], payload: bytes) -> None:
    with pytest.raises(FrameError):
        a_reader(header).feed(payload)


def test_a_huge_length_is_a_number_and_not_a_buffer() -> None:
    half = KEPT_BYTES_MAX // 2
    header = {
        "blocks": [{"type": "image", "bytes": 2**40, "mime_type": "image/png"}, {"type": "text", "bytes": 2}],
        "size": 2**40 + 2,
    }
    reader = a_reader(header)
    for _ in range(4):
        reader.feed(bytes(half))
    assert reader.missing == 2**40 + 2 - 4 * half
    reader.discard()


def test_an_image_that_is_too_large_is_replaced_by_a_text() -> None:
    size = KEPT_BYTES_MAX
    reader = a_reader({"blocks": [{"type": "image", "bytes": size, "mime_type": "image/png"}], "size": size})
    for start in range(0, size, 2**18):
        reader.feed(bytes(min(2**18, size - start)))
    result = reader.finish_now()
    assert result is not None
    assert json.loads(result.body)["content"] == [
        {"type": "text", "text": f"[image of {size} bytes left out: too large]"}
    ]


@pytest.mark.parametrize("details", [b"{", b"NaN", b"[" * 3000, b"\xff", b""])
def test_details_that_are_no_json_are_null(details: bytes) -> None:
    reader = a_reader({"details": len(details)})
    reader.feed(details)
    result = reader.finish_now()
    assert result is not None
    assert json.loads(result.body) == {"content": [], "details": None}


def test_unreadable_metadata_is_dropped() -> None:
    metadata = b'{"a": 1, "b": 1e999}'
    reader = a_reader({"metadata": len(metadata)})
    reader.feed(metadata)
    result = reader.finish_now()
    assert result is not None
    assert result.metadata == {}


# Updates


@given(st.lists(JSON | st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), max_size=4), JSON)
def test_a_valid_update_is_unchanged(content: list[object], details: object) -> None:
    body = update_body(json.dumps({"content": content, "details": details}).encode(), SETTINGS.limits)
    if body is not None:
        assert set(json.loads(body)) == {"content", "details"}
        assert shown_update(body) == body


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"content": 3}', b'{"content": [NaN]}', b"\xff",
    b'{"content": [], "details": 1e999}', b'{"content": [{"type": "resource_link", "uri": "a", "size": -1e999}]}'])  # fmt: skip
def test_an_invalid_update_is_dropped(payload: bytes) -> None:
    assert update_body(payload, SETTINGS.limits) is None


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x00", "\n"])
def test_a_long_update_is_truncated_to_fit_one_message(character: str) -> None:
    content = [{"type": "text", "text": character * 40_000}, {"type": "image", "data": "A" * 90_000}, "odd"]
    body = update_body(
        json.dumps({"content": content, "details": list(range(9000))}).encode(), SETTINGS.limits
    )
    assert body is not None
    shown = shown_update(body)
    assert len(shown) <= SHOWN_BYTES_MAX
    assert json.loads(shown)["content"][0]["text"].startswith(character * 500)


HEADERS = st.fixed_dictionaries(
    {"blocks": st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "image"]), "bytes": st.integers(-1, 9)}))
     | st.integers(0, 9).map(lambda length: [{"type": "text", "bytes": length}])},
    optional={"details": st.integers(-1, 6) | st.booleans(), "fits": st.booleans(), "size": st.integers(0, 9), "title": st.just("t")},
)  # fmt: skip
PAYLOADS = st.binary(max_size=9) | st.text('a\né"\\', max_size=9).map(str.encode)
BOUNDS = st.none() | st.integers(0, 12)


@given(
    header=HEADERS,
    payload=PAYLOADS,
    tail=st.sampled_from([b"", b"1", b"{}", b"nan"]),
    lines=BOUNDS,
    size=BOUNDS,
)
def test_a_short_result_equals_that_of_the_reader_or_is_none(
    header: dict[str, Any], payload: bytes, tail: bytes, lines: int | None, size: int | None
) -> None:
    payload += tail
    try:
        message = said(header)
    except MessageError:
        return
    limits = Limits(output_lines=lines, output_bytes=size)
    found = short_result(message, payload, limits)
    if found is None:
        return
    reader = ResultReader(message, a_capture(size, lines), a_capture, limits)
    reader.feed(payload)
    assert reader.missing == 0
    assert reader.finish_now() == found


STRUCTURED = [
    ("ok", '{"a":1}', None, None, True),
    ("ok", '{"a":1}', None, 7, True),
    ("ok", '{"a":1}', None, 6, False),  # the data are over the bytes of the output
    ("ok", '{"a":1}', 1, None, False),  # the text is over the lines
    ("tool_error", '{"a":1}', None, None, False),
    ("ok", "*******", None, None, False),  # a number that was a secret
    ("ok", None, None, None, True),  # null
]


@pytest.mark.parametrize("fits", [True, False, None])
@pytest.mark.parametrize(("kind", "details", "lines", "size", "structured"), STRUCTURED)
def test_details_are_structured_if_the_worker_says_so_and_nothing_is_cut(
    fits: bool | None, kind: str, details: str | None, lines: int | None, size: int | None, structured: bool
) -> None:
    payload = b"a\nb" + (details or "").encode()
    header = {"kind": kind, "blocks": [{"type": "text", "bytes": 3}], "details": details and len(details)}
    message = said({**header, "fits": fits})
    limits = Limits(output_lines=lines, output_bytes=size)
    reader = ResultReader(message, a_capture(size, lines), a_capture, limits)
    reader.feed(payload)
    for result in (reader.finish_now(), short_result(message, payload, limits)):
        if result is not None:
            assert json.loads(result.body).get("structured", False) == (structured and bool(fits))


@pytest.mark.parametrize("length", [1.0, True])
def test_a_wrong_length_gives_no_short_result(length: object) -> None:
    with pytest.raises(MessageError):
        said({"blocks": [{"type": "text", "bytes": length}]})


def test_usual_results_are_short_results() -> None:
    for value, details in (("12", b"12"), ("", None), ("two\nlines\n", None), ("é", b'{"a":[1]}')):
        ending = WorkerReport("ok", Result((TextBlock(value),), details=details))
        (frame,) = Decoder().feed(b"".join(ending.frames(1, USAGE)))
        assert short_result(said(frame.header), frame.payload, SETTINGS.limits) is not None
