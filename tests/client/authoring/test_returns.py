"""The schema of what a tool returns, from its return annotation, and whether values fit it."""

from __future__ import annotations

import datetime
import enum
import json
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import jsonschema  # type: ignore[import-untyped]  # comes with the MCP SDK, without types
import pytest
from pydantic import AnyUrl, AwareDatetime, BaseModel, Field, WithJsonSchema

from toolcell import File, Image, Link, ToolContext, ToolResult, tool
from toolcell._authoring.discover import Export, exports
from toolcell._authoring.returns import CHECKED_BYTES_MAX, SCHEMA_BYTES_MAX, WRAPPED, Returns
from toolcell._results.json_value import to_json

INTEGER = {"type": "integer"}


class Row(BaseModel):
    path: str
    line: Annotated[int, Field(ge=1)] = 1


class Tree(BaseModel):
    below: list[Tree] = []


class Keys(typing.TypedDict, total=False):
    count: typing.Required[int]  # also where annotations are text, as here
    rows: list[Row]


@dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Huge(BaseModel):
    text: Annotated[str, Field(description="x" * SCHEMA_BYTES_MAX)]


class Raises:
    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        raise OSError("as it likes")


class Unhashable:
    def __repr__(self) -> str:
        return "Unhashable"

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise OSError("as it likes")


def of(annotation: Any, function: Callable[..., Any] | None = None) -> Export:
    """The tool of a function with this return annotation."""

    def made(value: Any = None) -> Any:
        return value

    chosen = function or made
    chosen.__annotations__["return"] = annotation
    (export,) = exports({"__name__": __name__, "made": tool(chosen)}, "made").tools
    return export


def wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": schema}, "required": ["result"], WRAPPED: True}


ROW = {
    "title": "Row",
    "type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer", "minimum": 1, "default": 1}},
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Row, ROW),
        (list[Row], wrapped({"type": "array", "items": ROW})),
        (Row | None, wrapped({"anyOf": [ROW, {"type": "null"}]})),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (dict, {"type": "object", "additionalProperties": True}),
        ("dict", {"type": "object", "additionalProperties": True}),
        (int, wrapped(INTEGER)),
        ("int", wrapped(INTEGER)),
        (bool, wrapped({"type": "boolean"})),
        (Annotated[int, Field(ge=0)], wrapped({"type": "integer", "minimum": 0})),
        (Level, wrapped({"title": "Level", "type": "integer", "enum": [1]})),
        (Literal[1, 2], wrapped({"type": "integer", "enum": [1, 2]})),
        (Point, {"title": "Point", "type": "object", "properties": {"x": INTEGER}, "required": ["x"]}),
        (
            Keys,
            {
                "title": "Keys",
                "type": "object",
                "properties": {"count": INTEGER, "rows": {"type": "array", "items": ROW}},
                "required": ["count"],
            },
        ),
    ],
)
def test_a_return_annotation_gives_a_schema_of_an_object(annotation: Any, schema: dict[str, Any]) -> None:
    assert of(annotation).output_schema == schema


def test_a_model_of_itself_keeps_its_definition() -> None:
    schema = of(Tree).output_schema
    assert schema is not None
    assert (schema["type"], schema["properties"]["below"]["items"]) == ("object", {"$ref": "#/$defs/Tree"})
    assert schema["$defs"]["Tree"]["type"] == "object"


@pytest.mark.parametrize(
    "annotation",
    [
        None, str, "str", "None", Any, object, bytes, Colour, Literal["a"], str | None, str | int, str | Row, Colour | int,
        list, tuple, list[Any], Image, File, Link, ToolResult, list[Image], ToolContext, Callable[[], int], Iterator[int],
        "NotThere", "1 +", "raise", Raises, list[Raises], Huge, 7, Unhashable(), typing.TypeVar("T"), typing.NoReturn,
    ],
    ids=repr,
)  # fmt: skip
def test_what_may_be_text_or_no_json_has_no_schema_and_is_no_fault(annotation: Any) -> None:
    export = of(annotation)
    assert export.output_schema is None
    result = export.normalise("text")
    assert (result.fits, result.misfit) == (False, "")


def test_a_schema_that_finds_no_room_beside_that_of_the_arguments_is_left_out() -> None:
    class Large(BaseModel):
        text: Annotated[str, Field(description="x" * (SCHEMA_BYTES_MAX - 1000))]

    def made(value: Annotated[str, Field(description="x" * 40_000)]) -> Any:
        return value

    assert of(Large).output_schema is not None
    assert of(Large, made).output_schema is None


def test_definitions_that_would_grow_without_end_stay_where_they_are() -> None:
    kind: Any = Row
    for number in range(12):  # each twice in the next: four thousand in the end
        kind = type(f"Level{number}", (BaseModel,), {"__annotations__": {"a": kind, "b": kind}})
    schema = of(kind).output_schema
    assert schema is not None
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Level10"}


def test_what_a_generator_yields_is_not_what_it_returns() -> None:
    def made() -> Any:
        yield 1

    assert of(list[int], made).output_schema is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Row, Row(path="a")), (Row, {"path": "a", "line": 2}), (list[Row], [Row(path="a")]), (Row | None, None), (int, 7),
        (Tree, Tree(below=[Tree()])), (Keys, {"count": 1}), (dict, {"a": "b"}), (list[int], (1, 2)), (Level, Level.LOW),
        (Point, ToolResult("a text of its own", details={"x": 1})),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_that_fits(annotation: Any, value: Any) -> None:
    result = of(annotation).normalise(value)
    assert (result.fits, result.misfit) == (True, "")


@pytest.mark.parametrize(
    ("annotation", "value", "misfit"),
    [
        (list[int], ["a"], 'result[0] should be of type integer, got "a"'),
        (list[int], list("abcde"), 'got "a"; result[1]'),
        (Row, Row.model_construct(path="a", line=0), "line should be at least 1, got 0"),
        (Row, {}, "path is missing"),
        (Row, None, "it should be of type object, got null"),
        (Row, "not found", "it is text or other content, and no data"),
        (dict, [Image(data=b"\x89PNG\r\n\x1a\n")], "it is text or other content, and no data"),
        (Row, ToolResult("a text alone"), "it is text or other content, and no data"),
        (dict[str, float], {"a": float("nan")}, "a is NaN, and JSON has no such number"),
        (list[float | None], [None, float("-inf")], "result[1] is -Infinity, and JSON has no such number"),
    ],
)
def test_a_value_that_does_not_fit_is_a_result_all_the_same(annotation: Any, value: Any, misfit: str) -> None:
    result = of(annotation).normalise(value)
    assert not result.fits
    assert misfit in result.misfit
    assert result.misfit.count(";") <= 2
    assert result.blocks


@pytest.mark.parametrize(
    ("annotation", "sure"),
    [
        (int, {int}),
        (bool, {bool}),
        (float, {int}),
        (Annotated[int, Field(description="of all")], {int}),
        (Annotated[int, Field(le=3)], set[type]()),
        (int | None, set[type]()),
        (Literal[1, 2], set[type]()),
        (Annotated[int, WithJsonSchema({"type": ["integer", "null"]})], set[type]()),
        (Row, set[type]()),
        (Any, set[type]()),
    ],
    ids=repr,
)
def test_only_what_fits_in_any_case_is_not_looked_at(annotation: Any, sure: set[type]) -> None:
    returns = Returns(lambda: annotation)
    assert returns.sure == sure
    values = (True, False, 0, -1, 10**30, 1.5, float("inf"), float("nan"), "1", None)
    assert all(returns.misfit(to_json(value)) == "" for value in values if type(value) in sure)


def test_a_failure_is_not_held_against_the_schema() -> None:
    result = of(Row).normalise(ToolResult("no", is_error=True))
    assert (result.fits, result.misfit) == (False, "")


def test_a_value_that_would_take_long_to_check_is_not_looked_at() -> None:
    result = of(list[int]).normalise([10_000_000] * (CHECKED_BYTES_MAX // 9 + 1))
    assert (result.fits, result.misfit) == (False, "")


class Seen(BaseModel):
    at: datetime.datetime
    aware: AwareDatetime | None = None
    format: int = 1  # the names of keywords are names here
    pattern: Annotated[str, Field(pattern="^(?P<year>[0-9]+)$")] = "1"


class Odd(BaseModel):
    text: Annotated[
        str, Field(json_schema_extra={"pattern": "(?P<", "format": "date-time", "not": {"const": ""}})
    ]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


Key = Annotated[str, Field(pattern="^a")]


class Access(enum.Flag):
    READ = 1
    WRITE = 4


class Bits(enum.IntFlag):
    ONE = 1


PROMISES: list[tuple[Any, Any]] = [
    (Seen, Seen(at=datetime.datetime(2025, 1, 2, 3, 4, 5))),  # noqa: DTZ001  what `now()` gives
    (dict[str, datetime.time], {"a": datetime.time(7, 8)}),
    (list[datetime.timedelta], [datetime.timedelta(seconds=-0.5), datetime.timedelta(days=3)]),
    (dict[datetime.datetime, int], {datetime.datetime(2025, 1, 2): 1}),  # noqa: DTZ001
    (list[datetime.date], [datetime.datetime(2025, 1, 2)]),  # noqa: DTZ001  one is a date, too
    (dict[str, Path], {"a": Path("a b")}),
    (list[Decimal], [Decimal("1E+5"), Decimal("NaN")]),
    (list[Annotated[float, Field(multiple_of=0.1)]], [0.3]),
    (list[AnyUrl], [AnyUrl("http://a/{b}|")]),
    (dict[Key, int], {"b": 1}),
    (list[Annotated[Cat | Dog, Field(discriminator="kind")]], [Cat(), Dog()]),
    (Odd, {"text": ""}),
    (list[Access], [Access.READ | Access.WRITE, Access(0)]),
    (list[Bits], [Bits(6)]),
]


@pytest.mark.parametrize(("annotation", "value"), PROMISES, ids=repr)
def test_a_schema_promises_nothing_that_a_value_may_miss(annotation: Any, value: Any) -> None:
    export = of(annotation)
    schema = export.output_schema
    assert schema is not None
    result = export.normalise(value)
    assert (result.fits, result.misfit) == (True, "")
    assert result.details is not None
    sent = json.loads(result.details)
    jsonschema.validate(
        {"result": sent} if schema.get(WRAPPED) else sent, schema, format_checker=jsonschema.FormatChecker()
    )
    assert not keywords(schema) & {"format", "pattern", "propertyNames", "patternProperties", "oneOf", "not"}


def keywords(schema: Any) -> set[str]:
    """The keywords of a schema, at any depth, without the names of properties."""
    if isinstance(schema, list):
        parts = cast("list[Any]", schema)  # type: ignore[redundant-cast]  # not for pyright
        return {each for part in parts for each in keywords(part)}
    if not isinstance(schema, dict):
        return set()
    rules = cast("dict[str, Any]", schema)
    found = set(rules)
    for key, part in rules.items():
        found |= keywords(list(part.values()) if key in ("properties", "$defs") else part)
    return found
