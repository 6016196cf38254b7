"""The schemas of a described tool, checked: they come from a worker, and go to agents.

What is checked is the form, not the meaning: the daemon holds no value against them.
"""

from __future__ import annotations

import json
from typing import Final, cast

SCHEMA_BYTES_MAX: Final = 48 * 1024
"""Of both together: with the description and a path, less than a gRPC message of 64 KiB."""
LEADING: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$schema"})
"""Keys whose text names another schema."""


def check_schemas(of_arguments: bytes, of_value: bytes) -> None:
    """Check the schemas of a tool. Raises `ValueError` that says what is wrong and what to do.

    Args:
        of_arguments: JSON.
        of_value: JSON; empty where the tool has none.
    """
    if (size := len(of_arguments)) > SCHEMA_BYTES_MAX:
        raise ValueError(
            f"its schema has {size} bytes, at most {SCHEMA_BYTES_MAX} are sent; take fewer or simpler arguments"
        )
    _object_schema(of_arguments, "its schema")
    if not of_value:
        return
    if (size := len(of_arguments) + len(of_value)) > SCHEMA_BYTES_MAX:
        raise ValueError(
            f"its two schemas have {size} bytes, at most {SCHEMA_BYTES_MAX} are sent; return something simpler"
        )
    _check_references(_object_schema(of_value, "its output schema"))


def _object_schema(raw: bytes, what: str) -> dict[str, object]:
    try:
        schema = cast("object", json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON: {error}") from error
    if not isinstance(schema, dict) or cast("dict[str, object]", schema).get("type") != "object":
        raise ValueError(f'{what} is not one of an object; write {{"type": "object", …}}')
    return cast("dict[str, object]", schema)


def _check_references(schema: dict[str, object]) -> None:
    """Raise `ValueError` for a schema that leads elsewhere: clients compile it, and some fetch what it names."""
    left: list[object] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += cast("list[object]", part)
        elif isinstance(part, dict):
            for key, value in cast("dict[str, object]", part).items():
                if key in LEADING and isinstance(value, str) and not value.startswith("#"):
                    raise ValueError(
                        f"its output schema leads out of itself, by {key}; return something simpler"
                    )
                left.append(value)
