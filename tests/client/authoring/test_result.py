"""Every value that a tool may return ends in a Result or a ToolError."""

import base64
import concurrent.futures
import contextlib
import dataclasses
import enum
import functools
import importlib
import io
import json
import re
import subprocess
import threading
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from toolcell import Image, Link, ToolError, ToolResult
from toolcell._results.json_value import to_json
from toolcell._results.normalise import (
    FileBlock,
    ImageBlock,
    LinkBlock,
    Result,
    TextBlock,
    failure,
    metadata_body,
    normalise,
    update_body,
)
from toolcell._results.way_out import ENTER, OF_CLASSES, OF_RESPONSE, way_out

PNG = b"\x89PNG\r\n\x1a\n rest"


@dataclasses.dataclass
class Point:
    x: float
    label: str = ""


class Total(BaseModel):
    cents: int


class Side(enum.StrEnum):
    buy = "buy"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


async def aiter_of() -> AsyncIterator[int]:
    yield 1


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


def text(value: object) -> str:
    (block,) = normalise(value).blocks
    assert isinstance(block, TextBlock)
    return block.text


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("text", "text"),
        ("", ""),
        (None, "(no output)"),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (memoryview(b"x"), "x"),
        ("\ud83d\ude00 \ud800", "😀 \ufffd"),
        ("café", "café"),
    ],
)
def test_text_is_read_as_it_is_and_has_no_details(value: object, read: str) -> None:
    assert normalise(value) == Result((TextBlock(read),))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), '"NaN"'),
        ([float("inf"), None], '["Infinity",null]'),
        ({"a": [1, "é"], 2: None}, '{"a":[1,"é"],"2":null}'),
        ({"output": "data", "title": "data"}, '{"output":"data","title":"data"}'),
        (Point(1, "p"), '{"x":1,"label":"p"}'),
        (Total(cents=3), '{"cents":3}'),
        (Side.buy, '"buy"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (Path("a/b"), '"a/b"'),
        ({1}, "[1]"),
        (deque([1]), "[1]"),
        (range(3), "[0,1,2]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ({"a": 1}.keys(), '["a"]'),
        (10**100, str(10**100)),
        (["\ud800"], '["\ufffd"]'),
        ({"\ud800": Point(1, "\udfff")}, '{"\ufffd":{"x":1,"label":"\ufffd"}}'),
        ([Total(cents=1), "\ud800", float("nan")], '[{"cents":1},"\ufffd","NaN"]'),
    ],
)
def test_data_is_read_as_compact_json_and_kept_as_details(value: object, read: str) -> None:
    result = normalise(value)
    assert result.blocks == (TextBlock(read),)
    assert result.details == read.encode()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (object, "type object"),
        (lambda: {"orders": [1, {"by": (2, object())}]}, "does not know object (in orders.1.by.1). Return"),
        (lambda: Total.model_construct(cents=object()), "(in cents)"),
        (Hostile, "type Hostile"),
        (lambda: [Hostile()], "Hostile"),
        (lambda: nested(1000), "no JSON form"),
        (lambda: nested(100_000), "no JSON form"),
        (circular, "no JSON form"),
        (lambda: 10**5000, "4300 digits"),
        (lambda: {"n": [-(10**5000)]}, "4300 digits"),
        (lambda: b"\xff\x00", "Image(data=…)"),
        (lambda: [b"\xff"], "utf-8"),
        (generator, "with `yield`"),
        (coroutine, "async def"),
        (lambda: [Image(data=PNG), object()], "type object"),
        (lambda: [Image(data=PNG)] * 1001, "1001 blocks"),
        (lambda: ToolResult("x", metadata=[1]), "mapping"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  on purpose
        (lambda: ToolResult("x", details=object()), "type object"),
    ],
)
def test_what_has_no_form_is_a_tool_error_that_says_why(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ToolError) as caught:
        normalise(make())
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


class Colour(enum.Enum):
    red = "red"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow", serialize_by_alias=True)
    count: int = Field(1, serialization_alias="n")


@dataclasses.dataclass
class Table:
    rows: Mapping[object, int]


SURROGATE_KEYS = dict.fromkeys(map(chr, (0xDC00, 0xDC01)), 1)
MANY: dict[object, object] = {str(number): number for number in range(1000)}
SAME_KEYS: list[tuple[object, str]] = [
    (
        {1: "a", "1": "b"},
        """keys '1' and 1, which are both "1" in JSON, so a value would be lost. Give it keys of one""",
    ),
    ({True: 1, "true": 2}, "keys 'true' and True, which"),
    ({None: 1, "None": 2}, "keys 'None' and None, which"),
    ({1.5: 1, "1.5": 2}, "keys '1.5' and 1.5, which"),
    ({1: None, "1": float("nan")}, "keys '1' and 1, which"),
    ({Colour.red: 1, "red": 2}, "keys 'red' and <Colour.red: 'red'>, which"),
    ({Path("a"): 1, "a": 2}, "keys 'a' and PosixPath('a'), which"),
    (SURROGATE_KEYS, r"keys '\udc00' and '\udc01', which"),
    ({"\udc00": 1, Colour.red: 2, "red": 3}, "keys 'red' and <Colour.red: 'red'>, which"),
    ({**MANY, 7: "b"}, "keys '7' and 7, which"),
    ([MANY, {"a": ({"b": {2: 1, "2": 2}},)}], "keys '2' and 2 (in 1.a.0.b), which"),
    ({"a": iter([{1: 1, "1": 2}])}, 'whose JSON has the key "1" twice in one object'),
    (Table({1: 1, "1": 2}), "keys '1' and 1 (in rows), which"),
    (Table(MappingProxyType({1: 1, "1": 2})), "keys '1' and 1 (in rows), which"),
    (Open.model_validate({"n": 2}), 'whose JSON has the key "n" twice in one object'),
]


@pytest.mark.parametrize(("value", "message"), SAME_KEYS, ids=[message for _, message in SAME_KEYS])
def test_keys_that_are_the_same_in_json_are_an_error_that_names_them(value: object, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        normalise(value)
    assert message in str(caught.value)


def test_keys_that_are_the_same_below_what_is_read_again_are_an_error() -> None:
    value: object = {1: 1, "1": 2}
    for _ in range(230):
        value = [value]
    with pytest.raises(ToolError, match="are both"):
        normalise(value)


@given(
    st.recursive(
        st.none() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text("1.Ntruenol", max_size=4)
                | st.integers(0, 3)
                | st.booleans()
                | st.none()
                | st.just(1.5),
                inner,
            )
        ),
        max_leaves=20,
    )
)
def test_no_value_is_lost_by_its_key(value: object) -> None:
    try:
        text = to_json(value)
    except ToolError:
        return
    assert count(json.loads(text)) == count(value)


def count(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def test_details_with_keys_that_are_the_same_are_an_error_and_metadata_says_so() -> None:
    with pytest.raises(ToolError, match="keys '1' and 1, which"):
        normalise(ToolResult("x", details={1: 1, "1": 2}))
    told = json.loads(metadata_body({"good": 1, "bad": {1: 1, "1": 2}, **SURROGATE_KEYS}))
    assert told["good"] == 1
    assert "keys '1' and 1, which" in told["bad"]


def test_digits_in_a_text_are_no_integer() -> None:
    digits = "1" * 5000
    assert json.loads(text([digits])) == [digits]


def test_a_long_text_is_not_copied() -> None:
    long = "x" * 15_000_000
    assert text(long) is long


def test_pictures_and_links_stand_in_their_order() -> None:
    result = normalise(["see", Image(data=PNG), Link("file:///a/b.txt"), {"n": 1}])
    assert result.blocks == (
        TextBlock("see"),
        ImageBlock(PNG, "image/png"),
        LinkBlock("file:///a/b.txt", "b.txt", ""),
        TextBlock('{"n":1}'),
    )
    assert result.details is None
    assert normalise(Image(data=b"raw", format="webp")).blocks == (ImageBlock(b"raw", "image/webp"),)


def test_a_picture_is_read_when_it_is_made(tmp_path: Path) -> None:
    file = tmp_path / "plot.png"
    file.write_bytes(PNG)
    image = Image(file)
    file.unlink()
    assert (image.data, image.mime_type) == (PNG, "image/png")


def test_a_picture_that_nobody_could_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="name its format"):
        Image(data=b"junk")
    with pytest.raises(TypeError):
        Image()
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(11 * 1024 * 1024)
    with pytest.raises(ToolError, match="larger than 10 MiB"):
        Image(large)


def test_a_tool_result_is_what_it_says() -> None:
    result = normalise(
        ToolResult(["a", Image(data=PNG)], details={"n": 1}, title="T", metadata={"k": [1]}, is_error=True)
    )
    assert [type(block) for block in result.blocks] == [TextBlock, ImageBlock]
    assert (result.details, result.title, result.metadata, result.is_error) == (
        b'{"n":1}',
        "T",
        b'{"k":[1]}',
        True,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"output": "text", "title": "T", "metadata": {"a": 1}},
            Result((TextBlock("text"),), title="T", metadata=b'{"a":1}'),
        ),
        (
            {
                "output": "see",
                "attachments": [
                    {
                        "type": "file",
                        "mime": "image/png",
                        "url": "data:image/png;base64," + base64.b64encode(PNG).decode(),
                    },
                    {"type": "file", "mime": "text/plain", "url": "file:///x.txt", "filename": "x.txt"},
                ],
            },
            Result(
                (
                    TextBlock("see"),
                    ImageBlock(PNG, "image/png"),
                    LinkBlock("file:///x.txt", "x.txt", "text/plain"),
                )
            ),
        ),
        (
            {"content": [{"type": "text", "text": "a"}], "details": {"n": 1}, "isError": True},
            Result((TextBlock("a"),), details=b'{"n":1}', is_error=True),
        ),
        (
            {"textResultForLlm": "no", "resultType": "failure", "error": "E1"},
            Result((TextBlock("no"),), details=b'{"error":"E1"}', is_error=True),
        ),
        ({"textResultForLlm": "yes", "resultType": "success"}, Result((TextBlock("yes"),))),
        (
            {"content": "a", "useless": True, "providerMetadata": {"p": 1}},
            Result((TextBlock("a"),), metadata=b'{"useless":true,"providerMetadata":{"p":1}}'),
        ),
        (
            {"content": "a", "metadata": {"n": 1}, "output": {"rows": 2}},
            Result((TextBlock("a"),), details=b'{"rows":2}', metadata=b'{"n":1}'),
        ),
        (
            {"content": [{"type": "text", "text": "a"}], "structuredContent": {"b": 1}, "_meta": {"c": 2}},
            Result((TextBlock("a"),), details=b'{"b":1}', metadata=b'{"_meta":{"c":2}}'),
        ),
        (
            {"output": {"rows": 2}, "metadata": {"n": 1}},
            Result((TextBlock('{"rows":2}'),), details=b'{"rows":2}', metadata=b'{"n":1}'),
        ),
        (
            {
                "content": [
                    {"type": "file", "uri": "file:///a.pdf", "mime": "application/pdf", "name": "a"},
                    {
                        "type": "file",
                        "uri": "data:image/png;base64," + base64.b64encode(PNG).decode(),
                        "mime": "image/png",
                    },
                ]
            },
            Result((LinkBlock("file:///a.pdf", "a", "application/pdf"), ImageBlock(PNG, "image/png"))),
        ),
        (
            {
                "content": [
                    {"type": "audio", "data": "//8=", "mimeType": "audio/ogg"},
                    {
                        "type": "resource",
                        "resource": {"uri": "f:///b.pdf", "blob": "JVBERg==", "mimeType": "application/pdf"},
                    },
                    {"type": "resource", "resource": {"uri": "f:///c", "text": "plain"}},
                ]
            },
            Result(
                (
                    FileBlock(b"\xff\xff", "audio/ogg", "file"),
                    FileBlock(b"%PDF", "application/pdf", "b.pdf"),
                    TextBlock("plain"),
                )
            ),
        ),
    ],
)
def test_the_specifications_shapes_are_read_where_they_are_asked_for(value: object, expected: Result) -> None:
    assert normalise(value, shapes=True) == expected
    assert normalise(value).details == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "value",
    [
        {"output": 3, "unit": "m"},
        {"output": {"not": "text"}},
        {"content": "x", "author": "y"},
        {"content": [{"type": "video"}]},
        {"content": [{"type": "audio", "data": 7, "mimeType": "audio/ogg"}]},
        {"content": [{"type": "audio", "data": "no base64!", "mimeType": "audio/ogg"}]},
        {"content": [{"type": "resource", "resource": 7}]},
        {"content": [{"type": "resource", "resource": {"uri": 7, "blob": ""}}]},
        {"content": [{"type": "resource", "resource": {"uri": "f:///a"}}]},
        {"content": [{"type": "image", "data": "no base64!", "mimeType": "image/png"}]},
        {"content": 3},
        {"content": "x", "metadata": 3},
        {"content": [{"type": "file", "mime": "text/plain"}]},
        {"output": {"x": 1}, "metadata": 3},
        {1: 2},
        {},
    ],
)
def test_a_mapping_that_is_not_quite_a_shape_is_data(value: object) -> None:
    assert normalise(value, shapes=True) == normalise(value)


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=8)
    | st.datetimes(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner)
    ),
    max_leaves=10,
)
SURROGATES = st.text(st.characters(categories=["Cs", "Ll"]), max_size=5)


@given(JSONISH | SURROGATES | st.lists(SURROGATES))
def test_any_value_ends_in_a_result_that_travels_or_a_tool_error(value: object) -> None:
    for shapes in (False, True):
        try:
            result = normalise(value, shapes=shapes)
        except ToolError:
            continue
        body = json.loads(result.body())
        assert set(body) == {"content", "details"}
        assert result.details is None or json.loads(result.details) == body["details"]


def test_the_body_has_the_blocks_of_the_wire() -> None:
    body = json.loads(normalise(["a", Image(data=PNG), Link("u:x", mime_type="text/plain")]).body())
    assert body == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": base64.b64encode(PNG).decode(), "mime_type": "image/png"},
            {"type": "resource_link", "uri": "u:x", "name": "u:x", "mime_type": "text/plain"},
        ],
        "details": None,
    }


@pytest.mark.parametrize("content", [object(), b"\xff", "x" * 17_000_000, nested(1000)], ids=type)
def test_an_update_that_cannot_be_shown_says_so_and_raises_nothing(content: object) -> None:
    body = update_body(content, None)
    assert len(body) < 1000
    assert json.loads(body)["content"][0]["text"].startswith("(an update")


def test_metadata_that_cannot_be_sent_does_not_take_the_rest_along() -> None:
    values = json.loads(metadata_body({"good": 1, "bad": object()}))
    assert values["good"] == 1
    assert "no JSON form" in values["bad"]


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        (ValueError("x"), "Raise it, and the call fails with its message."),
        (threading.Lock(), "Enter it in the tool, by `with` or `async with`, and return what it gives."),
        (contextlib.nullcontext(3), "Enter it in the tool"),
        (object(), "Return text, plain data"),
        (generator, "type function that has no JSON form. Call it, and return what that gives."),
        (functools.partial(int), "Call it"),
        (int, "Make an object of it"),
        (
            io.TextIOWrapper(io.BytesIO()),
            "an open file, of type TextIOWrapper. Return what is in it, file.read()",
        ),
        (io.StringIO("x"), "an open file, of type StringIO. Return what is in it: file.getvalue()."),
        (re.match("a", "a"), "match.group()"),
        (subprocess.CompletedProcess("a", 0), "result.stdout, with capture_output=True and text=True."),
        (concurrent.futures.Future(), "future.result()"),
        (concurrent.futures.ThreadPoolExecutor(), "future.result()"),
        (types.SimpleNamespace(a=1), "vars(namespace)"),
        ({"rows": aiter_of()}, "(in rows). Return a list: [value async for value in values]."),
        ({"row": types.SimpleNamespace(a=1)}, "(in row). Return its values: vars(namespace)."),
        ({"picture": b"\xff"}, "(in picture). Decode it; a picture is returned as Image(data=…)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_json_form_is_told_with_what_to_write_in_its_place(value: object, way_out: str) -> None:
    with pytest.raises(ToolError, match=re.escape(way_out)):
        normalise(value)


class Response:
    """As that of `requests`, whose objects `with` gives themselves."""

    __enter__ = __exit__ = lambda *_: None


def test_a_response_of_a_library_is_known_by_the_name_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    assert way_out(Response()) == ENTER
    monkeypatch.setattr(Response, "__module__", "requests.models")
    assert way_out(Response()) == OF_RESPONSE


OF_CODE = {"function", "method", "builtin_function_or_method", "coroutine", "async_generator"}
"""That `builtins` has no name for."""


def test_each_class_of_the_standard_library_with_a_way_out_has_that_name() -> None:
    own = {"requests", "httpx", "aiohttp"}
    for name in OF_CLASSES:
        module, _, kind = name.rpartition(".")
        if module.partition(".")[0] in own or kind in OF_CODE:
            continue
        found = getattr(importlib.import_module(module), kind)
        assert f"{found.__module__}.{found.__qualname__}" == name


def test_a_failure_has_the_details_of_its_tool_error() -> None:
    result = failure(ToolError("Unknown sku", details={"unknown": ["x"]}))
    assert result == Result((TextBlock("Unknown sku"),), details=b'{"unknown":["x"]}', is_error=True)
    assert failure(ToolError("m", details=object())).details is None
    assert failure(ValueError("x")).blocks == (TextBlock("ValueError: x"),)
