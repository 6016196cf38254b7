"""Messages: the vectors of the manual, the bounds of every field, and invalid messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.protocol import frames
from toolcelld.protocol.frames import Decoder, Frame, FrameError
from toolcelld.protocol.messages import (
    FIGURE_MAX,
    LINE_CHARACTERS_MAX,
    AskMessage,
    FromWorker,
    MessageError,
    ProgressMessage,
    ResultMessage,
    ToWorker,
    from_worker,
    to_worker,
)

VECTORS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[3] / "docs/vectors/frames.json").read_text(encoding="utf-8")
)["messages"]
READ: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {"daemon": to_worker, "worker": from_worker}
TYPES: Final[dict[str, dict[str, Any]]] = {
    "daemon": {str(fields(kind)[0].default): kind for kind in get_args(ToWorker)},
    "worker": {str(fields(kind)[0].default): kind for kind in get_args(FromWorker)},
}
WRONG: Final[tuple[Any, ...]] = (None, True, -1, 7, 10**400, 1.5, "\ud800", "7", [], [None], {}, {"a": 1})
EACH: Final = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def test_every_message_of_either_direction_has_one_vector_with_all_of_its_fields() -> None:
    for side, types in TYPES.items():
        headers = [vector["header"] for vector in VECTORS if vector["from"] == side]
        assert sorted(header["type"] for header in headers) == sorted(types)
        for header in headers:
            names = {field.name for field in fields(types[header["type"]])}
            assert names - header.keys() <= {"size"}


@EACH
def test_a_vector_is_read_as_its_fields_and_written_as_its_bytes(vector: dict[str, Any]) -> None:
    data, payload = bytes.fromhex(vector["hex"]), vector["payload"].encode()
    (frame,) = Decoder().feed(data)
    assert frame == Frame(vector["header"], payload)
    message = READ[vector["from"]](frame.header)
    assert type(message) is TYPES[vector["from"]][vector["header"]["type"]]
    assert frames.encode(message, payload) == data
    assert list(frames.split(message, payload)) == [data]


def changed(value: Any, wrong: Any) -> Iterator[Any]:
    """Yield copies in which the value, or one value within it, is replaced."""
    yield wrong
    match value:
        case [*items]:
            for index, old in enumerate(items):
                for new in changed(old, wrong):
                    yield [*items[:index], new, *items[index + 1 :]]
        case {**named}:
            for name, old in named.items():
                for new in changed(old, wrong):
                    yield {**named, name: new}
        case _:
            pass


def same_type(value: Any, wrong: Any) -> bool:
    """Return whether both values have the same JSON type."""
    if isinstance(value, float):
        return isinstance(wrong, int | float) and not isinstance(wrong, bool)
    return type(value) is type(wrong)


@EACH
def test_a_value_of_another_type_is_an_error_that_names_message_and_field(vector: dict[str, Any]) -> None:
    header, read = vector["header"], READ[vector["from"]]
    optional = {
        field.name
        for field in fields(TYPES[vector["from"]][header["type"]])
        if field.default is None  # which null stands for, too
    }
    for name, value in header.items():
        for wrong in WRONG:
            if name == "type" or same_type(value, wrong) or (wrong is None and name in optional):
                continue
            with pytest.raises(MessageError) as caught:
                read({**header, name: wrong})
            assert caught.value.message == header["type"]
            assert caught.value.field.split(".")[0] == name
            assert len(str(caught.value)) < 220


@EACH
def test_any_value_of_a_field_gives_a_message_that_can_be_encoded_or_an_error(
    vector: dict[str, Any],
) -> None:
    header, read = vector["header"], READ[vector["from"]]
    for name, value in header.items():
        for wrong in WRONG:
            for new in changed(value, wrong):
                if name == "type" and not isinstance(new, str):
                    continue  # no header of a frame
                try:
                    message = read({**header, name: new})
                except MessageError:
                    continue
                assert read(frames.header_of(message)) == message


@EACH
def test_a_field_that_is_missing_is_an_error_unless_it_has_a_default(vector: dict[str, Any]) -> None:
    header, read = vector["header"], READ[vector["from"]]
    for field in fields(TYPES[vector["from"]][header["type"]])[1:]:
        less = {name: value for name, value in header.items() if name != field.name}
        if field.default is MISSING:
            with pytest.raises(MessageError) as caught:
                read(less)
            assert (caught.value.message, caught.value.field) == (header["type"], field.name)
        else:
            assert getattr(read(less), field.name) == field.default


@EACH
def test_an_unknown_field_is_ignored(vector: dict[str, Any]) -> None:
    header, read = vector["header"], READ[vector["from"]]
    later: list[Any] = []
    for _ in range(500):  # deeper than anything that is checked
        later = [later]
    assert read({**header, "later": later}) == read(header)


@pytest.mark.parametrize(
    ("kind", "field", "bad", "good"),
    [
        ("hello", "protocol", [0, 2], [1]),
        ("hello", "pid", [-1, 2**31], [0, 2**31 - 1]),
        ("loaded", "layers", [["x"] * 33], [["x"] * 32, []]),
        ("broken", "stage", ["start", ""], ["syntax", "import", "exit", "describe"]),
        ("broken", "line", [-1, 2**31], [0, 2**31 - 1]),
        ("result", "seq", [-1, 2**63], [0, 2**63 - 1]),
        ("result", "kind", ["timed_out", "", "OK"], ["ok", "denied", "aborted", "internal"]),
        ("result", "blocks", [[{"type": "text", "bytes": 0}] * 257], [[{"type": "text", "bytes": 0}] * 256, []]),
        ("result", "blocks", [[{"type": "text", "bytes": 2**40 + 1}]], [[{"type": "text", "bytes": 2**40}]]),
        ("result", "blocks", [[{"type": "audio", "bytes": 1}], [{"bytes": 1}], [{"type": "text"}]], []),
        ("result", "details", [-1, 2**40 + 1], [0, 2**40]),
        ("result", "metadata", [-1, 2**40 + 1], [0, 2**40]),
        ("result", "cpu", [-0.1, 1e300], [0, 1, 1e15]),
        ("result", "rss", [-1, 10**15 + 1, 1.0], [0, 10**15]),
        ("result", "threads", [-1, 1_000_001], [0, 1_000_000]),
        ("result", "limit", ["cpu", ""], ["open_files", "file_size", "disk", "processes"]),
        ("log", "lost", [-1, 10**9 + 1], [0, 10**9]),
        ("ask", "ask", [0, -1, 2**31], [1, 2**31 - 1]),
        ("request", "ask", [0, 2**31], [1]),
        ("withdraw", "ask", [0, 2**31], [1]),
    ],
)  # fmt: skip
def test_a_value_at_its_bound_passes_and_one_beyond_does_not(
    kind: str, field: str, bad: list[Any], good: list[Any]
) -> None:
    (header,) = [vector["header"] for vector in VECTORS if vector["header"]["type"] == kind]
    for value in good:
        assert from_worker({**header, field: value})
    for value in bad:
        with pytest.raises(MessageError, match=f"^{field}"):
            from_worker({**header, field: value})


@pytest.mark.parametrize("kind", ["", "obey", "call", "x" * 60_000, "\ud800"])
def test_an_unknown_type_is_an_error_with_a_bounded_quote(kind: str) -> None:
    with pytest.raises(MessageError) as caught:
        from_worker({"type": kind, "seq": 1})
    assert caught.value.field == "type"
    assert len(str(caught.value)) < 100
    assert isinstance(caught.value, FrameError)


@pytest.mark.parametrize("text", ["é" * 5000, "\udfff" * 5000, "a\ud800b", "\ud83d\ude00"])
def test_a_display_text_is_truncated_and_has_no_lone_surrogates(text: str) -> None:
    message = from_worker({"type": "progress", "seq": 1, "done": 1, "message": text})
    assert isinstance(message, ProgressMessage)
    assert len(message.message) <= LINE_CHARACTERS_MAX
    message.message.encode()


def test_a_question_is_never_truncated() -> None:
    message = from_worker(
        {"type": "ask", "seq": 1, "ask": 1, "question": "é" * 30_000, "patterns": ["x" * 30_000]}
    )
    assert isinstance(message, AskMessage)
    assert (len(message.question), len(message.patterns[0])) == (30_000, 30_000)


@pytest.mark.parametrize("figure", [1e300, -1e300, 10**400, FIGURE_MAX + 1])
def test_an_invalid_figure_of_progress_is_read_as_zero(figure: float) -> None:
    message = from_worker({"type": "progress", "seq": 1, "done": figure, "total": figure})
    assert isinstance(message, ProgressMessage)
    assert (message.done, message.total) == (0, 0)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["\ud800", 10**400, "text", "image"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
NAMES: Final = sorted({field.name for kind in TYPES["worker"].values() for field in fields(kind)} - {"type"})


@given(st.sampled_from(sorted(TYPES["worker"])), st.dictionaries(st.sampled_from(NAMES), JSON))
def test_any_header_is_a_message_or_raises_a_message_error(kind: str, said: dict[str, Any]) -> None:
    try:
        message = from_worker({**said, "type": kind})
    except MessageError:
        return
    assert from_worker(frames.header_of(message)) == message


PLAIN: Final[dict[str, Any]] = {
    "type": "result", "seq": 1, "kind": "ok", "ran": True, "blocks": [{"type": "text", "bytes": 3}], "details": 3,
    "cpu": 0.5, "rss": 1, "threads": 0,
}  # fmt: skip


WRONG_FIELDS: Final[list[tuple[str, object]]] = [
    ("seq", -1), ("seq", True), ("seq", 2**63), ("kind", "fine"), ("kind", []), ("ran", 1), ("blocks", {}),
    ("blocks", [{"type": "text", "bytes": -1}]), ("blocks", [{"type": "text", "bytes": True}]),
    ("blocks", [{"type": [], "bytes": 1}]), ("blocks", [{"bytes": 1}]), ("blocks", ["text"]), ("details", -1),
    ("details", 1.5), ("cpu", -0.1), ("cpu", float("nan")), ("cpu", float("inf")), ("cpu", "1"), ("rss", 1e20),
    ("rss", 1.0), ("threads", -1), ("threads", 10**9),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_plain_result_with_a_wrong_field_is_refused_as_by_the_validator(field: str, value: object) -> None:
    assert isinstance(from_worker(PLAIN), ResultMessage)
    with pytest.raises(MessageError) as refused:
        from_worker({**PLAIN, field: value})
    assert field in str(refused.value)


@pytest.mark.parametrize("blocks", [[], [{"type": "text", "bytes": 0}]])
def test_a_plain_result_reads_the_same_with_and_without_the_validator(blocks: list[Any]) -> None:
    header = {**PLAIN, "blocks": blocks}
    assert from_worker(header) == from_worker({**header, "unknown": 1})
