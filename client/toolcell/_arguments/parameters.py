"""The arguments of a tool: their JSON Schema for the model, and their validation in front of the tool.

Three sources. The parameters of a function, or a mapping of names to types, become a TypedDict that exists only for
pydantic: unlike a model it may have a field called `schema` or `_x`, and pydantic fills in the defaults. A model is
used as it is. A JSON Schema written by hand is enforced by `jsonschema`, its defaults are applied by `defaults`.

The arguments are parsed twice. On their own, because that refuses NaN and finds names that the tool does not know;
and by pydantic again, because validation from JSON, not from parsed values, makes a date of a string and a tuple of
an array. Whatever the source, unknown names are refused unless the schema says that it takes them. The names are those
of the schema: a field with an alias goes by that, and not by its name in Python.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, cast, get_origin

import pydantic_core
from pydantic import AliasChoices, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from typing_extensions import TypedDict  # pydantic does not take typing's before 3.12

from toolcell._arguments.defaults import filled
from toolcell._arguments.jsonschema import check_schema, violations
from toolcell._arguments.messages import complaints, unknown
from toolcell._results.errors import InvalidArguments, ToolError
from toolcell._results.exception_text import describe_exception
from toolcell._results.json_value import NumberTooLargeError, from_json, to_json

# A tool travels in one message of at most 64 KiB, with its description and its name.
SCHEMA_BYTES_MAX = 48 * 1024
# All sums of six flags are listed, of more their bounds.
COMBINED_MAX = 2**6 - 1
# Complaints that are looked for under a schema written by hand; twenty are shown.
VIOLATIONS_MAX = 1000


class InvalidToolDefinition(Exception):
    """A tool cannot be used; the message says what is wrong with it and what to do."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a tool takes: the schema for the model, and the reading of what the model sends."""

    # The names there are, and the field of each; None: others are taken as well
    known: Mapping[str, str] | None
    # Both late: a worker that only runs tools needs no schema, and of a file with many tools it runs a few
    make_adapter: Callable[[], TypeAdapter[Any]] | None  # None: the schema itself is enforced
    make_schema: Callable[[], dict[str, Any]]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an object; raises InvalidToolDefinition."""
        return self.make_schema()

    def prepare(self) -> None:
        """Make now what reads the arguments. A type that cannot be read is told of where it is called, or described."""
        if self.make_adapter is not None:
            with contextlib.suppress(Exception):  # as where it is read
                self.make_adapter()

    def read(self, raw: bytes) -> Any:
        """Validate JSON; raise InvalidArguments with every complaint."""
        raw = raw or b"{}"
        data = _parsed(raw)
        wrong: list[tuple[str, str]] = []
        if (known := self.known) is not None and (wrong := _unknown_names(data, known)):
            data = {name: item for name, item in data.items() if name in known}
        value: Any = data
        if self.make_adapter is None:
            schema = self.schema
            value = data = filled(data, schema, schema)
            wrong += islice(violations(data, schema, schema), VIOLATIONS_MAX)
        else:
            try:
                value = self.make_adapter().validator.validate_json(raw)
            except ValidationError as error:
                wrong += complaints(error, data)
            except Exception as error:  # noqa: BLE001  a validator of the tool's own may raise anything
                wrong = [("", f"were refused by the tool's own validation: {describe_exception(error)}")]
        if wrong:
            raise InvalidArguments(wrong)
        return value


def from_fields(fields: Mapping[str, Any]) -> Parameters:
    """Parameters of names and their types, which may be `Annotated` with a `Field`."""
    known = _known_names({name: _taken_as(name, hint) for name, hint in fields.items()})

    @functools.cache
    def make_adapter() -> TypeAdapter[Any]:
        return record(fields, ConfigDict(allow_inf_nan=False))

    @functools.cache
    def make_schema() -> dict[str, Any]:
        try:
            return _closed(make_adapter().json_schema(schema_generator=PlainJsonSchema))
        except Exception as error:  # its types have hooks of their own, which may raise anything
            raise InvalidToolDefinition(_culprit(fields, error)) from error

    return Parameters(known, make_adapter, make_schema)


def _taken_as(name: str, hint: Any) -> Sequence[str]:
    """The names under which pydantic takes a field, that of its schema first."""
    return _names_of(name, FieldInfo.from_annotation(hint)) if get_origin(hint) is Annotated else (name,)


def _names_of(name: str, field: FieldInfo) -> Sequence[str]:
    alias = field.validation_alias
    if alias is None or isinstance(alias, str):
        return (name if alias is None else alias,)
    paths = alias.choices if isinstance(alias, AliasChoices) else [alias]
    # A longer path leads into another argument.
    words = [[path] if isinstance(path, str) else path.path for path in paths]
    return [str(first) for first, *more in words if not more]


def _known_names(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    known: dict[str, str] = {}
    for field, taken in names.items():
        for name in taken:
            if (other := known.setdefault(name, field)) != field:
                raise InvalidToolDefinition(
                    f"the parameters {other!r} and {field!r} are both called {name!r}"
                )
    return known


def _unknown_names(data: Mapping[str, Any], known: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is wrong with names: one that the tool does not have, and two of one argument, of which it would get one."""
    wrong: list[tuple[str, str]] = []
    taken: dict[str, str] = {}
    for name in data:
        if name not in known:
            wrong.append((name, unknown(known)))
        elif (other := taken.setdefault(known[name], name)) != name:
            wrong.append((name, f"is the same argument as {other}; send one of them"))
    return wrong


def record(fields: Mapping[str, Any], config: ConfigDict) -> TypeAdapter[Any]:
    """What reads a mapping with these keys."""
    make: Any = TypedDict  # checkers want the keys written out
    keys = make("record", dict(fields))
    keys.__pydantic_config__ = config
    return TypeAdapter(keys)


def from_args(args: object) -> Parameters:
    """Parameters of a model, of `{"path": str}`, or of a JSON Schema."""
    if args is None:
        return from_fields({})
    if isinstance(args, Mapping):
        items = cast("Mapping[str, Any]", args)
        if items.get("type") == "object":
            return _by_hand(dict(items))
        if items and all(isinstance(item, Mapping) for item in items.values()):
            needed = [name for name, item in items.items() if "default" not in item]
            return _by_hand({"type": "object", "properties": dict(items), "required": needed})
        fields = {name: _field(name, item) for name, item in items.items()}
        return from_fields(fields)
    if not isinstance(args, type):
        raise InvalidToolDefinition(
            f"args is {args!r}; it is a model, a dict of types such as {{'path': str}}, or a JSON Schema"
        )
    try:
        adapter = TypeAdapter[Any](args)
        schema = adapter.json_schema(schema_generator=PlainJsonSchema)
    except Exception as error:  # its types have hooks of their own, which may raise anything
        raise InvalidToolDefinition(
            f"args={args.__name__} has no JSON Schema: {_first_line(error)}"
        ) from error
    if schema.get("type") != "object" and "$ref" not in schema:
        raise InvalidToolDefinition(
            f"args={args.__name__} is no object; for single arguments write args={{'name': {args.__name__}}}"
        )
    declared: Mapping[str, FieldInfo] = getattr(args, "__pydantic_fields__", {})
    return _known(_closed(schema), adapter, declared)


def _field(name: str, item: Any) -> Any:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  what a tool really passed
        raise InvalidToolDefinition(f"args has the key {name!r}; the names of arguments are strings")
    if isinstance(item, FieldInfo):
        return Annotated[Any if item.annotation is None else item.annotation, item]
    if isinstance(item, str | Mapping):
        raise InvalidToolDefinition(
            f"args[{name!r}] is {item!r}; give its type, for example {{{name!r}: str}}"
        )
    return item


def _known(
    schema: dict[str, Any], adapter: TypeAdapter[Any] | None, fields: Mapping[str, FieldInfo] | None = None
) -> Parameters:
    known: dict[str, str] | None = None
    if schema["additionalProperties"] is False:
        names = [_names_of(name, field) for name, field in (fields or {}).items()]
        known = {name: name for name in schema["properties"]}
        known |= {name: taken[0] for taken in names for name in taken if taken[0] in known}
    return Parameters(known, None if adapter is None else lambda: adapter, lambda: schema)


def _by_hand(schema: dict[str, Any]) -> Parameters:
    try:
        check_schema(schema, schema)
    except ValueError as error:
        raise InvalidToolDefinition(str(error)) from error
    return _known(_closed(schema), None)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as hosts want it: an object on top, with properties, closed unless it says otherwise."""
    if "$ref" in schema:  # a model that refers to itself
        own = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        schema = {**own, **{key: value for key, value in schema.items() if key != "$ref"}}
    schema = {**schema, "properties": schema.get("properties", {})}
    schema.setdefault("additionalProperties", False)
    schema.pop("title", None)
    try:
        schema = finite(schema)
        size = len(to_json(schema))
    except ToolError as error:
        raise InvalidToolDefinition("its schema holds something that is no JSON") from error
    if size > SCHEMA_BYTES_MAX:
        raise InvalidToolDefinition(
            f"its schema has {size} bytes, the most is {SCHEMA_BYTES_MAX}; take fewer or simpler arguments"
        )
    return schema


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        data = from_json(raw)
    except NumberTooLargeError as error:
        raise InvalidArguments([(place, "should be a finite number") for place in error.places]) from None
    except ValueError as error:
        raise InvalidArguments([("", f"are not JSON: {_reason(raw, error)}")]) from None
    if not isinstance(data, dict):
        raise InvalidArguments(
            [("", f"should be a JSON object, got {to_json(data)[:60].decode(errors='replace')}")]
        )
    return data  # pyright: ignore[reportUnknownVariableType]  # JSON objects have string keys


def _reason(raw: bytes, error: ValueError) -> str:
    try:
        pydantic_core.from_json(raw, allow_inf_nan=True)
    except ValueError:
        return str(error)
    return "NaN and Infinity are no numbers there"


def _culprit(fields: Mapping[str, Any], error: Exception) -> str:
    """Which parameter it is: pydantic names the type, the author knows the parameter."""
    for name, annotation in fields.items():
        try:
            with warnings.catch_warnings(action="ignore"):  # an alias means nothing outside of its mapping
                TypeAdapter[Any](annotation).json_schema(schema_generator=PlainJsonSchema)
        except Exception as own:  # noqa: BLE001  as above
            return f"parameter {name!r} has a type that JSON cannot fill: {_kind(own)}"
    return f"its parameters have no JSON Schema: {_first_line(error)}"


def _kind(error: Exception) -> str:
    """What a type is that has no schema: "a function"; else what pydantic says of it."""
    line = _first_line(error)
    if "core_schema.CallableSchema" in line:
        return "a function"
    if "typing_extensions.TypedDict" in line:
        return "before Python 3.12, a TypedDict of typing; write: from typing_extensions import TypedDict"
    if "bound method BaseModel.validate" in line:
        return "a model of pydantic.v1; write: from pydantic import BaseModel"
    found = re.search(r"(?:IsInstanceSchema \(|schema for )<class '([\w.]+)'>", line)
    return f"an object of the class {found[1]}" if found else line


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].partition(". Set `arbitrary")[0]
    return (
        line
        if isinstance(error, PydanticUserError | TypeError | NameError)
        else f"{type(error).__name__}: {line}"
    )


def finite(schema: Any) -> Any:
    """The schema without NaN and infinities, which JSON does not have: a default, or a bound that is none."""
    if isinstance(schema, dict):
        rules = cast("dict[str, Any]", schema)
        return {key: finite(part) for key, part in rules.items() if not _is_odd(part)}
    if isinstance(schema, list):
        parts = cast("list[Any]", schema)  # type: ignore[redundant-cast]  # not for pyright
        return [finite(part) for part in parts if not _is_odd(part)]
    return schema


def _is_odd(part: object) -> bool:
    return isinstance(part, float) and not math.isfinite(part)


class _UnfillableError(PydanticInvalidForJsonSchema):
    """A type of which JSON has no value."""


class PlainJsonSchema(GenerateJsonSchema):
    """Without a title for every field, which repeats its name, and silent about defaults that are no JSON.

    A field that is read from inside of others only (`AliasPath`) is refused: it has no name that a schema could say. What
    pydantic takes of an enumeration or of literals is what is promised: the combinations of flags are values too, and a
    value that no JSON is equal to, as a tuple, is none of an argument.
    """

    def enum_schema(self, schema: Any) -> dict[str, Any]:
        kind: type[enum.Enum] = schema["cls"]
        if issubclass(kind, enum.Flag):
            said = {key: rule for key, rule in super().enum_schema(schema).items() if key != "enum"}
            return {**_flags(kind), **said} if _is_strict(kind) else {**said, "type": "integer"}
        members = [member for member in schema["members"] if self._is_given(member.value)]
        if not members:
            raise _UnfillableError(
                f"no member of the enumeration {kind.__name__} has a value that JSON has; make them texts or numbers"
            )
        kept: Any = {**schema, "members": members}
        return super().enum_schema(kept)

    def literal_schema(self, schema: Any) -> dict[str, Any]:
        expected = [value for value in schema["expected"] if self._is_given(value)]
        if not expected:
            raise _UnfillableError(
                f"Literal[{schema['expected'][0]!s}] takes nothing that JSON has; write texts or numbers there, or give "
                "the enumeration a base: class Name(str, Enum)"
            )
        kept: Any = {**schema, "expected": expected}
        return super().literal_schema(kept)

    def union_schema(self, schema: Any) -> dict[str, Any]:
        return _with_a_choice(super().union_schema(schema), "anyOf")

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        return _with_a_choice(super().tagged_union_schema(schema), "oneOf")

    def default_schema(self, schema: Any) -> dict[str, Any]:
        try:
            return super().default_schema(schema)
        except _UnfillableError as error:  # it has its default in every call
            raise pydantic_core.PydanticOmit from error

    def _is_given(self, value: object) -> bool:
        """Whether an argument in JSON can be equal to a value; a result has a JSON form of its own."""
        return self.mode != "validation" or value is None or isinstance(value, str | int | float)

    def _get_alias_name(self, field: Any, name: str) -> str:
        alias: Any = field.get("validation_alias") if self.mode == "validation" else None
        if isinstance(alias, list):
            paths: Any = alias if isinstance(alias[0], list) else [alias]  # pyright: ignore[reportUnknownVariableType]
            if all(len(path) > 1 for path in paths):
                raise PydanticInvalidForJsonSchema(f"{name!r} is read by a path (AliasPath); give it a name")
        return super()._get_alias_name(field, name)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        pass


def _with_a_choice(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the schema of a union, in which types of which JSON has no value are left out. Raises where none is left."""
    if schema.get(key) == []:
        raise _UnfillableError(
            "nothing of a union has a value that JSON has; give an enumeration in it a base: class Name(str, Enum)"
        )
    return schema


def _is_strict(kind: type[enum.Flag]) -> bool:
    """Whether a combination of flags has no other bits than theirs."""
    boundary: object = getattr(kind, "_boundary_", enum.STRICT)
    return boundary is enum.STRICT


def _flags(kind: type[enum.Flag]) -> dict[str, Any]:
    """The values of flags that are combined, and their names; of more than six flags only the bounds."""
    names = ", ".join(f"{flag.value} {name}" for name, flag in kind.__members__.items())
    most = 0
    for flag in kind.__members__.values():
        most |= flag.value
    rules: dict[str, Any] = {"minimum": 0, "maximum": most}
    if most <= COMBINED_MAX:
        rules = {"enum": [value for value in range(most + 1) if _is_combination(kind, value)]}
    return {"type": "integer", "description": f"A sum of: {names}", **rules}


def _is_combination(kind: type[enum.Flag], value: int) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True
