"""What a tool returns, as its return annotation says it: a JSON Schema for programs, and whether a value fits.

The schema is that of the JSON that travels, so of pydantic's serialisation. MCP takes objects alone, so that any other
value stands under `result`, as FastMCP has it, and a key of FastMCP's says so to its client.

A tool has no schema where its value may be text: text stays text, and most tools return it. Nor where the value may be
anything, or what JSON cannot hold, such as a picture. That is no mistake of the author, so nothing is reported.

The value is held against the schema in the worker. Where it is shown there is often a client that refuses the whole
result if it does not fit, and the schema is the tool's own code: who checks it should be in a cell.

So the schema promises what is checked, and in words that every client reads alike. It has no `format`: `datetime.now()`
has no zone, and "date-time" wants one; `timedelta(seconds=0.5)` is no "duration" to JavaScript. Nor has it a `pattern`, which
another engine may not be able to read, and which `Decimal("1E+5")` misses that pydantic writes for a decimal.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, Final, cast

import pydantic_core
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from toolcell._arguments.jsonschema import DEPTH_MAX, MAPPINGS, enforced, fits, target, violations
from toolcell._arguments.parameters import PlainJsonSchema, finite
from toolcell._results.json_value import to_json
from toolcell._results.mcp_content import data_hint

SCHEMA_BYTES_MAX: Final = 16 * 1024
"""Of a schema: what a model hardly ever needs should not fill the list of tools. A larger one is left out."""
CHECKED_BYTES_MAX: Final = 256 * 1024
"""Of a value. Checking takes a quarter of a millisecond for each KiB, and more is not shown to agents anyway."""
COMPLAINTS_MAX: Final = 3
PARTS_MAX: Final = 2000
"""Of a schema whose definitions are put in their places."""
WRAPPED: Final = "x-fastmcp-wrap-result"
"""The key of a schema whose value stands under `result`."""
_CONTAINERS: Final = frozenset[Any]({list, dict, tuple})
_OF_TYPE: Final[Mapping[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int}),  # a float can be infinite
}
"""The classes whose values are of a type of JSON Schema, whatever they are."""
_PRESENCE: Final = frozenset[Any]({typing.Required, typing.NotRequired})
_SAID: Final = frozenset({"title", "description", "default", "examples", "deprecated", "$defs"})
"""Keywords of an output schema that promise nothing."""
_UNSAFE: Final = frozenset({"pattern", "multipleOf", "not"})
"""Keywords that clients may read in another way, `multipleOf` of fractions, or that may mean more with less below them."""
_VALUES: Final = frozenset({"default", "examples", "const", "enum", "required"})
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_TEXT_OR_NOTHING: Final = frozenset[object]({inspect.Signature.empty, None, str, "str", "None", Any, "Any"})


class Returns:
    """What one tool returns.

    Args:
        hint: Resolves the return annotation; it may raise anything.
    """

    def __init__(self, hint: Callable[[], Any]) -> None:
        self._hint = hint

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the structured value, an object; None where the tool has none."""
        try:
            if (hint := data_hint(self._hint())) is None:
                return None
            adapter = TypeAdapter[Any](_readable(hint))
            schema = adapter.json_schema(mode="serialization", schema_generator=PlainJsonSchema)
            schema = cast("dict[str, Any]", _promise(finite(schema)))
            return _as_object(_without_references(schema)) or _as_object(schema)
        except Exception:  # noqa: BLE001  an annotation is the tool's code, and its types have hooks of their own
            return None

    @cached_property
    def sure(self) -> frozenset[type]:
        """The classes of which every value fits, so that none needs to be looked at."""
        schema = self.schema or {}
        if not schema.get(WRAPPED) or not isinstance(
            inner := schema.get("properties", {}).get("result"), dict
        ):
            return frozenset()
        rules = cast("dict[str, Any]", inner)
        return (
            _OF_TYPE.get(str(rules["type"]), frozenset()) if rules.keys() - _SAID == {"type"} else frozenset()
        )

    def misfit(self, details: bytes | None) -> str | None:
        """Say what is wrong with a value, in a sentence; "" if it fits, None if it has not been looked at.

        Args:
            details: The value as JSON; None is null.
        """
        if (schema := self.schema) is None or len(details or b"") > CHECKED_BYTES_MAX:
            return None
        value = pydantic_core.from_json(details or b"null")
        if schema.get(WRAPPED):
            value = {"result": value}
        try:
            if fits(value, schema, schema):
                return ""
            found = list(islice(violations(value, schema, schema), COMPLAINTS_MAX))
        except Exception:  # noqa: BLE001  a pattern in another dialect, or a type's own schema that is none
            return None
        return "; ".join(f"{path or 'it'} {_without_number(sentence)}" for path, sentence in found)


def returns_of(function: Callable[..., object], resolve: Callable[[Any], Any]) -> Returns | None:
    """What a function returns; None where its annotation says at once that there is nothing to be said.

    Args:
        resolve: Makes a type of an annotation, which may be text; called late, and may raise anything.
    """
    annotation = inspect.signature(function).return_annotation
    try:
        if annotation in _TEXT_OR_NOTHING:
            return None
    except Exception:  # noqa: BLE001  an annotation is any value; one that cannot be hashed, as `Annotated` with a list
        pass
    return Returns(lambda: resolve(annotation))


def _readable(hint: Any) -> Any:
    """The type with typing's own TypedDicts replaced, which pydantic does not take before Python 3.12."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        own: Any = TypedDict  # checkers want the keys written out
        kinds: dict[str, Any] = {}
        for name, kind in typing.get_type_hints(hint, include_extras=True).items():
            said: Any = typing.get_origin(kind)  # Required or NotRequired
            if said not in _PRESENCE:
                said = typing.Required if name in hint.__required_keys__ else typing.NotRequired
                kinds[name] = said[_readable(kind)]
            else:
                kinds[name] = said[_readable(typing.get_args(kind)[0])]
        return own(hint.__name__, kinds)
    origin: Any = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin in _CONTAINERS:
        return origin[tuple(map(_readable, inner))]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_readable, inner))]  # noqa: UP007  made of values
    return hint


def _without_number(sentence: str) -> str:
    """The sentence about a value; another one where it is a text that stands for a number."""
    word = next((word for word in _NO_NUMBERS if sentence == f'should be of type number, got "{word}"'), "")
    return f"is {word}, and JSON has no such number" if word else sentence


def _promise(schema: Any) -> Any:
    """The schema with the keywords alone that are checked here and mean the same everywhere."""
    if isinstance(schema, list):
        return [_promise(part) for part in schema]  # pyright: ignore[reportUnknownVariableType]  # of JSON
    if not isinstance(schema, dict):
        return schema
    rules = cast("dict[str, Any]", schema)
    kept = {
        key: rule for key, rule in rules.items() if key in _SAID or (enforced(key) and key not in _UNSAFE)
    }
    if "patternProperties" in rules:  # which `additionalProperties` is beside
        kept.pop("additionalProperties", None)
    if "oneOf" in kept:  # what has told the alternatives apart may be gone
        kept["anyOf"] = kept.pop("oneOf")
    for key, rule in kept.items():
        if key in MAPPINGS:
            kept[key] = {name: _promise(part) for name, part in rule.items()}
        elif key not in _VALUES:
            kept[key] = _promise(rule)
    return kept


def _without_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions in their places: FastMCP's client looks for none outside of `result`.

    Itself where a definition refers to itself, or where it would become too long.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    left = PARTS_MAX

    def inlined(part: Any, within: tuple[str, ...]) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RecursionError
        if isinstance(part, list):
            return [inlined(each, within) for each in part]  # pyright: ignore[reportUnknownVariableType]  # of JSON
        if not isinstance(part, dict):
            return part
        rules = cast("dict[str, Any]", part)
        found: dict[str, Any] = {}
        if isinstance(name := rules.get("$ref"), str):
            if name in within:
                raise RecursionError
            found = inlined(definitions[name.removeprefix("#/$defs/")], (*within, name))
            rules = {key: value for key, value in rules.items() if key != "$ref"}
        return {**found, **{key: inlined(value, within) for key, value in rules.items()}}

    try:
        rest = {key: value for key, value in schema.items() if key != "$defs"}
        return cast("dict[str, Any]", inlined(rest, ()))
    except RecursionError:
        return schema


def _as_object(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema as MCP takes it, or None where there is nothing to be said of the value."""
    if _may_be_text(schema, schema):
        return None
    own = schema
    if "$ref" in schema:  # a model that refers to itself
        own = {**target(schema["$ref"], schema), "$defs": schema["$defs"]}
    if own.get("type") != "object":
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        own = {"type": "object", "properties": {"result": inner}, "required": ["result"], WRAPPED: True}
        if "$defs" in schema:
            own["$defs"] = schema["$defs"]
    return own if len(to_json(own)) <= SCHEMA_BYTES_MAX else None


def _may_be_text(schema: Any, root: Mapping[str, Any], depth: int = 0) -> bool:
    """Whether a value may be text, a picture or anything else that is shown and is no data."""
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return True
    rules = cast("Mapping[str, Any]", schema)
    if "$ref" in rules:
        return _may_be_text(target(rules["$ref"], root), root, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in rules:
            return any(_may_be_text(part, root, depth + 1) for part in rules[keyword])
    if rules.get("type") == "array":  # one of anything may hold pictures
        return not rules.get("prefixItems") and rules.get("items", {}) in ({}, True)
    return rules.get("type") not in ("object", "integer", "number", "boolean", "null")
