"""The defaults of a JSON Schema that an author wrote by hand, filled in where the model left an argument out.

The standard has `default` as an annotation, but every author means it: without this the tool would get a mapping without
the key. A default that its own schema refuses is passed over; `"default": None` beside `"type": "string"` says that there
is none. Nothing is filled in inside of a default, and nothing below `anyOf`, `oneOf` and `not`, which do not say what holds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, cast

from toolcell._arguments.jsonschema import DEPTH_MAX, target, violations

_NONE: Final = object()


def filled(value: Any, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the value with the defaults of the schema, which has passed `check_schema`; the value itself is not changed."""
    if depth > DEPTH_MAX or not isinstance(schema, Mapping):
        return value
    rules = cast("Mapping[str, Any]", schema)
    for part in _applied(rules, root):
        value = filled(value, part, root, depth + 1)
    if _is(value, dict) and "properties" in rules:
        return _with_properties(value, rules["properties"], root, depth)
    if _is(value, list) and "items" in rules:
        start = len(rules.get("prefixItems", ()))
        return [*value[:start], *(filled(item, rules["items"], root, depth + 1) for item in value[start:])]
    return value


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)


def _applied(rules: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    """What holds for the same value, too."""
    referred = [target(rules["$ref"], root)] if "$ref" in rules else []
    return [*referred, *rules.get("allOf", ())]


def _with_properties(
    value: dict[str, Any], properties: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    result = dict(value)
    for name, part in properties.items():
        if name in value:
            result[name] = filled(value[name], part, root, depth + 1)
        elif (default := _default(part, root)) is not _NONE:
            result[name] = default
    return result


def _default(schema: Any, root: Mapping[str, Any]) -> Any:
    """A copy of the default that a property has, itself or by what it refers to."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, Mapping):
            break
        rules = cast("Mapping[str, Any]", schema)
        if "default" in rules:
            default = copy.deepcopy(rules["default"])
            return _NONE if any(violations(default, rules, root)) else default
        if "$ref" not in rules:
            break
        schema = target(rules["$ref"], root)
    return _NONE
