"""Arguments as models send them: right, wrong, and hostile."""

import enum
import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jsonschema  # type: ignore[import-untyped]  # comes with the MCP SDK, without types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, field_validator

from toolcell._arguments.parameters import InvalidToolDefinition, Parameters, from_args, from_fields
from toolcell._authoring.function import read_function
from toolcell._results.errors import PROBLEMS_SHOWN, InvalidArguments


class Side(enum.Enum):
    buy = "buy"
    sell = "sell"


class Line(BaseModel):
    sku: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{3}$")]
    quantity: int = 1


def order(lines: list[Line], side: Side = Side.buy) -> None: ...


def mixed(
    path: str, n: int = 1, ratio: float = 0.5, either: int | list[int] = 1, day: date | None = None
) -> None: ...


def parameters(function: Callable[..., object]) -> Parameters:
    return read_function(function)[1]


PARAMETERS = parameters(mixed)


def refusal(raw: bytes) -> InvalidArguments | None:
    try:
        value = PARAMETERS.read(raw)
    except InvalidArguments as error:
        return error
    assert set(value) == {"path", "n", "ratio", "either", "day"}
    return None


def refused(of: Parameters, raw: bytes) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        of.read(raw)
    return caught.value


def test_a_refusal_names_each_place_what_should_be_there_and_what_was() -> None:
    error = refused(parameters(order), b'{"lines": [{"sku": "abc"}], "side": "hold"}')
    assert str(error) == (
        "2 arguments are wrong, the tool did not run.\n"
        '  lines[0].sku: should match ^[A-Z]{3}-\\d{3}$, got "abc"\n'
        '  side: should be "buy" or "sell", got "hold"'
    )
    assert error.problems[1] == ("side", 'should be "buy" or "sell", got "hold"')


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "path: is missing"),
        (b"{}", "path: is missing"),
        (b'{"path": 3}', "path: should be a valid string, got 3"),
        (b'{"path": null}', "path: should be a valid string, got null"),
        (b'{"path": "", "n": "x"}', 'n: should be a valid integer, got "x"'),
        (b'{"path": "", "n": {"a": 1}}', "n: should be a valid integer, got an object with 1 keys"),
        (
            b'{"path": "", "z": 1}',
            "z: is not an argument of this tool; there are: path, n, ratio, either, day",
        ),
        (b'{"path": "", "either": "x"}', 'either: should be a valid integer, got "x", or should be a valid'),
        (b'{"path": "", "either": [1, "x"]}', 'either[1]: should be a valid integer, got "x"'),
        (b'{"path": "", "ratio": 1e999}', "ratio: should be a finite number"),
    ],
)
def test_one_wrong_argument_is_one_sentence(raw: bytes, problem: str) -> None:
    message = str(refused(parameters(mixed), raw))
    assert message.startswith("1 argument")
    assert problem in message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"nonsense", "are not JSON: expected"),
        (b'{"path": "x"', "are not JSON: EOF"),
        (b'{"path": NaN}', "NaN and Infinity"),
        (b'{"path": -Infinity}', "NaN and Infinity"),
        (b"[" * 10_000 + b"]" * 10_000, "recursion limit"),
        (b'{"path":' * 10_000, "recursion limit"),
        (b"\xff\xfe", "are not JSON"),
        (b'{"path": "\xff"}', "are not JSON"),
        (b'{"path": "\\ud800"}', "are not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "number out of range"),
        (b"[1]", "should be a JSON object, got [1]"),
        (b'"text"', 'should be a JSON object, got "text"'),
        (b"null", "should be a JSON object, got null"),
    ],
)
def test_what_is_no_json_object_is_refused_with_the_reason(raw: bytes, message: str) -> None:
    text = str(refused(parameters(mixed), raw))
    assert message in text
    assert text.endswith("the tool did not run.")
    assert len(text) < 200


def test_a_refusal_is_short_however_much_is_wrong() -> None:
    everything_wrong = json.dumps({"path": "x" * 100_000, "either": [["y" * 1000]] * 5000}).encode()
    error = refused(parameters(mixed), everything_wrong)
    assert len(error.problems) == PROBLEMS_SHOWN
    assert len(str(error)) < 20_000
    assert "more" in str(error).splitlines()[-1]
    too_many = json.dumps({"path": "", "either": ["x"] * 20_000}).encode()
    assert "too many to list" in str(refused(parameters(mixed), too_many))
    extra = json.dumps({"path": "", **{f"k{n}" * 50: n for n in range(1000)}}).encode()
    assert len(str(refused(parameters(mixed), extra))) < 20_000


@given(
    st.dictionaries(
        st.text(max_size=5) | st.sampled_from(["path", "n", "ratio", "either", "day"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    )
)
def test_any_arguments_are_read_or_refused_in_bounds(arguments: dict[str, Any]) -> None:
    error = refusal(json.dumps(arguments).encode())
    assert error is None or (0 < len(error.problems) <= PROBLEMS_SHOWN and len(str(error)) < 20_000)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    error = refusal(raw)
    assert error is None or error.problems


def test_values_are_those_that_the_hints_ask_for() -> None:
    value = parameters(mixed).read(b'{"path": "p", "n": "7", "day": "2026-01-02"}')
    assert value == {"path": "p", "n": 7, "ratio": 0.5, "either": 1, "day": date(2026, 1, 2)}


class Greet(BaseModel):
    """Whom to greet."""

    name: str
    loud: bool = False


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("should be even")
        return n


class Typed(TypedDict):
    name: str


def test_a_model_is_the_arguments_and_takes_no_others() -> None:
    greet = from_args(Greet)
    assert greet.read(b'{"name": "Ada"}') == Greet(name="Ada")
    assert greet.schema["additionalProperties"] is False
    assert greet.schema["description"] == "Whom to greet."
    error = refused(greet, b'{"name": 1, "nmae": 2}')
    assert [path for path, _ in error.problems] == ["nmae", "name"]


def test_a_model_that_takes_more_says_so() -> None:
    assert from_args(Open).read(b'{"x": 1}').x == 1  # pyright: ignore[reportUnknownMemberType]  an extra attribute


def test_a_model_that_holds_itself_is_an_object_on_top() -> None:
    schema = from_args(Node).schema
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {"value", "children"}


def test_a_validator_speaks_to_the_model() -> None:
    assert refused(from_args(Even), b'{"n": 3}').problems == (("n", "should be even, got 3"),)


class Broken(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def lookup(cls, n: int) -> int:
        return {1: 1}[n]


def test_a_validator_that_breaks_refuses_the_arguments() -> None:
    text = str(refused(from_args(Broken), b'{"n": 3}'))
    assert (
        text == "the arguments were refused by the tool's own validation: KeyError: 3, the tool did not run."
    )


def test_arguments_may_be_given_as_types() -> None:
    of = from_args(
        {"path": str, "n": Annotated[int, Field(ge=1)], "note": Field(default="", description="why")}
    )
    assert of.schema["properties"]["note"] == {"default": "", "description": "why"}
    assert of.schema["required"] == ["path", "n"]
    assert of.read(b'{"path": "p", "n": 2}') == {"path": "p", "n": 2, "note": ""}
    assert refused(of, b'{"path": "p", "n": 0}').problems == (
        ("n", "should be greater than or equal to 1, got 0"),
    )


@pytest.mark.skipif("sys.version_info < (3, 12)", reason="pydantic reads typing.TypedDict from 3.12 on")
def test_a_typed_dict_is_the_arguments() -> None:
    assert from_args(Typed).read(b'{"name": "x"}') == {"name": "x"}


@pytest.mark.skipif("sys.version_info >= (3, 12)", reason="pydantic reads typing.TypedDict from 3.12 on")
def test_a_typed_dict_that_cannot_be_read_is_told_with_the_import_that_can() -> None:
    with pytest.raises(InvalidToolDefinition, match="write: from typing_extensions import TypedDict"):
        _ = from_args({"typed": Typed}).schema


def test_a_model_of_the_old_pydantic_is_told_with_the_import_of_the_new_one() -> None:
    from pydantic.v1 import BaseModel as OldModel

    class Old(OldModel):
        name: str

    with pytest.raises(
        InvalidToolDefinition, match=r"a model of pydantic\.v1; write: from pydantic import BaseModel"
    ):
        _ = from_args({"old": Old}).schema


def test_what_reads_arguments_is_made_when_the_first_ones_come_or_before_by_request() -> None:
    made: list[str] = []

    class Counted:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
            made.append("reader")
            return handler(int)

    asked, prepared = from_args({"a": Counted}), from_args({"a": Counted})
    assert made == []
    assert asked.read(b'{"a": 1}') == asked.read(b'{"a": 1}') == {"a": 1}
    assert len(made) == 1
    prepared.prepare()
    assert len(made) == 2
    assert prepared.read(b'{"a": 2}') == {"a": 2}
    assert len(made) == 2


def test_a_type_that_cannot_be_read_is_no_failure_of_what_prepares_the_tool() -> None:
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
            raise KeyError("odd")

    of = from_args({"a": Odd})
    of.prepare()
    assert "refused by the tool's own validation: KeyError: 'odd'" in str(refused(of, b'{"a": 1}'))


def test_no_args_is_no_arguments() -> None:
    assert from_args(None).read(b"") == {}
    assert "none at all" in str(refused(from_args(None), b'{"x": 1}'))


class Renamed(BaseModel):
    start: int = Field(alias="from")
    step: int = Field(default=1, validation_alias=AliasChoices("by", "step-size"))


class ByPath(BaseModel):
    first: str = Field(default="", validation_alias=AliasPath("rest", 0))


def renamed(
    from_: Annotated[str, Field(alias="from")],
    x: Annotated[str, Field(alias="cik-A")] = "",
    class_: str = Field("", validation_alias="class"),
    either: Annotated[str, Field(validation_alias=AliasChoices(AliasPath("z", 0), "p", "q"))] = "",
) -> None: ...


def swapped(a: Annotated[str, Field(alias="b")], b: Annotated[str, Field(alias="a")]) -> None: ...


def nested(window: Renamed) -> None: ...


@pytest.mark.parametrize(
    ("of", "sent", "value"),
    [
        (
            parameters(renamed),
            {"from": "f", "cik-A": "x", "class": "c", "p": "e"},
            {"from_": "f", "x": "x", "class_": "c", "either": "e"},
        ),
        (
            parameters(renamed),
            {"from": "f", "q": "e"},
            {"from_": "f", "x": "", "class_": "", "either": "e"},
        ),
        (parameters(swapped), {"a": "A", "b": "B"}, {"a": "B", "b": "A"}),
        (parameters(nested), {"window": {"from": 2}}, {"window": Renamed.model_validate({"from": 2})}),
        (from_args(Renamed), {"from": 1, "step-size": 3}, Renamed.model_validate({"from": 1, "by": 3})),
        (from_args({"in_": Field(alias="in")}), {"in": 1}, {"in_": 1}),
    ],
)
def test_an_argument_goes_by_the_name_of_the_schema(of: Parameters, sent: dict[str, Any], value: Any) -> None:
    assert set(of.schema.get("required", ())) <= set(sent)
    assert of.read(json.dumps(sent).encode()) == value


@pytest.mark.parametrize(
    ("of", "sent", "problems"),
    [
        (
            parameters(renamed),
            {"from_": "f", "x": "x"},
            {
                "from_": "is not an argument of this tool; there are: from, cik-A, class, p, q",
                "x": "is not an argument of this tool; there are: from, cik-A, class, p, q",
                "from": "is missing",
            },
        ),
        (parameters(renamed), {"from": "f", "z": ["e"]}, {"z": "is not an argument of this tool; there are: from"}),
        (parameters(renamed), {"from": "f", "q": "1", "p": "2"}, {"p": "is the same argument as q; send one of them"}),
        (from_args(Renamed), {"from": 1, "start": 2}, {"start": "is not an argument of this tool; there are: from, by"}),
        (from_args(Renamed), {"from": 1, "by": 2, "step-size": 3}, {"step-size": "is the same argument as by"}),
    ],
)  # fmt: skip
def test_no_argument_is_dropped_for_its_name(
    of: Parameters, sent: dict[str, Any], problems: dict[str, str]
) -> None:
    found = dict(refused(of, json.dumps(sent).encode()).problems)
    assert set(found) == set(problems)
    for name, sentence in problems.items():
        assert found[name].startswith(sentence)


def test_names_that_a_schema_cannot_say_are_refused() -> None:
    def twice(a: Annotated[str, Field(alias="b")], b: str) -> None: ...
    def path(a: Annotated[str, Field(validation_alias=AliasPath("k", 0))] = "") -> None: ...
    def below(model: ByPath) -> None: ...

    with pytest.raises(InvalidToolDefinition, match="the parameters 'a' and 'b' are both called 'b'"):
        parameters(twice)
    for function in (path, below):
        with pytest.raises(InvalidToolDefinition, match=r"is read by a path \(AliasPath\); give it a name"):
            _ = parameters(function).schema
    with pytest.raises(InvalidToolDefinition, match=r"is read by a path \(AliasPath\)"):
        from_args(ByPath)


def test_a_schema_has_neither_nan_nor_infinity() -> None:
    def odd(
        x: float = float("nan"),
        y: Annotated[float, Field(le=float("inf"), examples=[float("inf"), 1.0])] = 1,
    ) -> None: ...

    assert parameters(odd).schema["properties"] == {
        "x": {"type": "number"},
        "y": {"type": "number", "default": 1, "examples": [1.0]},
    }


class Pair(NamedTuple):
    first: int
    second: str = ""


class Window(BaseModel):
    start: int


def shapes(
    pair: tuple[int, str] | None = None,
    deep: tuple[int, tuple[int, int]] = (1, (1, 1)),
    named: Pair | None = None,
    tags: list[str] | None = None,
    many: set[int] | None = None,
    meta: dict[str, int] | None = None,
    model: Window | None = None,
    text: str = "",
    either: str | list[str] = "",
) -> None: ...


BY_HAND = from_args(
    {
        "type": "object",
        "properties": {
            "tags": {"type": "array"},
            "meta": {"type": ["object", "null"]},
            "text": {"type": "string"},
        },
    }
)


@pytest.mark.parametrize(
    ("sent", "problems"),
    [
        ({"pair": [1]}, {"pair[1]": "is missing"}),
        ({"pair": []}, {"pair[0]": "is missing", "pair[1]": "is missing"}),
        ({"deep": [1, [1]]}, {"deep[1][1]": "is missing"}),
        ({"deep": [1]}, {"deep[1]": "is missing"}),
        ({"named": []}, {"named[0]": "is missing"}),
        ({"model": {}}, {"model.start": "is missing"}),
    ],
)
def test_what_is_missing_in_an_array_is_named_by_its_index(
    sent: dict[str, Any], problems: dict[str, str]
) -> None:
    assert dict(refused(parameters(shapes), json.dumps(sent).encode()).problems) == problems


@pytest.mark.parametrize(
    ("of", "sent", "noun"),
    [
        *((parameters(shapes), {name: '[1, "a"]'}, "an array") for name in ("pair", "tags", "many")),
        *((parameters(shapes), {name: ' {"start": 1}'}, "an object") for name in ("meta", "model")),
        (BY_HAND, {"tags": "[]"}, "an array"),
        (BY_HAND, {"meta": "{}"}, "an object"),
    ],
)
def test_a_text_that_holds_the_json_of_an_argument_is_told_so(
    of: Parameters, sent: dict[str, str], noun: str
) -> None:
    ((_, sentence),) = refused(of, json.dumps(sent).encode()).problems
    assert sentence.endswith(f"; send {noun}, not a text that holds one")


@pytest.mark.parametrize(
    ("of", "sent"),
    [
        (parameters(shapes), {"tags": "[1"}),
        (parameters(shapes), {"tags": '{"a": 1}'}),
        (parameters(shapes), {"meta": "[1]"}),
        (parameters(shapes), {"tags": "[" * 100_000}),
        (parameters(shapes), {"tags": "[" * 1000 + "]" * 1000}),
        (parameters(shapes), {"text": ["a"]}),
        (parameters(shapes), {"pair": [1, "a", 2]}),
        (BY_HAND, {"tags": "{}"}),
        (BY_HAND, {"text": []}),
    ],
)
def test_any_other_value_is_not(of: Parameters, sent: dict[str, Any]) -> None:
    assert "a text that holds one" not in str(refused(of, json.dumps(sent).encode()))


@pytest.mark.parametrize("sent", [{"text": '["a"]'}, {"either": '["a"]'}])
def test_a_text_stays_one_whatever_it_holds(sent: dict[str, str]) -> None:
    assert parameters(shapes).read(json.dumps(sent).encode()).items() >= sent.items()


class Colour(enum.Enum):
    RED = (255, 0)
    NONE = "none"


class Place(enum.Enum):
    HOME = (1, 2)


class Access(enum.Flag, boundary=enum.STRICT):  # the default of newer Pythons
    READ = 1
    WRITE = 4


class Nine(enum.Flag, boundary=enum.STRICT):
    LOW, HIGH = 1, 256


class Bits(enum.IntFlag):
    ONE = 1


ENUMERATED: list[tuple[Any, list[Any], list[Any]]] = [
    (Access, [0, 1, 4, 5], [2, 6, -1, "READ"]),
    (Nine, [0, 1, 256, 257], [-1, 512]),
    (Bits, [0, 1, 6], ["ONE"]),
    (Colour, ["none"], [[255, 0], "RED"]),
    (Literal["a", Colour.NONE, Side.buy], ["a"], ["none"]),
    (Literal[Side.buy] | int, [3], ["buy"]),
]


@pytest.mark.parametrize(("hint", "taken", "refused"), ENUMERATED, ids=repr)
def test_of_an_enumeration_the_schema_has_what_is_taken(
    hint: Any, taken: list[Any], refused: list[Any]
) -> None:
    parameters = from_fields({"at": hint})
    schema = jsonschema.Draft202012Validator(parameters.schema)
    for value in taken:
        assert schema.is_valid({"at": value}), value
        parameters.read(json.dumps({"at": value}).encode())
    for value in refused:
        assert not schema.is_valid({"at": value}), value
        with pytest.raises(InvalidArguments):
            parameters.read(json.dumps({"at": value}).encode())


class Left(BaseModel):
    kind: Literal[Side.buy]


class Right(BaseModel):
    kind: Literal[Side.sell]


@pytest.mark.parametrize(
    "hint",
    [
        Place,
        Literal[Place.HOME],
        list[Literal[b"x"]],
        Left | Right,
        Annotated[Left | Right, Field(discriminator="kind")],
    ],
    ids=repr,
)
def test_an_enumeration_of_which_json_has_no_value_is_refused_where_it_has_no_default(hint: Any) -> None:
    with pytest.raises(
        InvalidToolDefinition, match=r"'at' has a type that JSON cannot fill: .*(texts or numbers|a base)"
    ):
        _ = from_fields({"at": hint}).schema
    parameters = from_fields({"at": Annotated[hint, Field(default=Place.HOME)]})
    assert parameters.schema["properties"] == {}
    assert parameters.read(b"{}") == {"at": Place.HOME}
