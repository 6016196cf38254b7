"""Placeholders `{{name}}` of templates, and the texts that take their place.

A template is filled in one pass, so a value that contains a placeholder is text. What a value may hold is checked here
for every strategy: no null byte, and a bounded length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from toolcell import ToolError

VALUE_CHARACTERS_MAX = 10_000
"""Of one parameter as text: more than any path or pattern needs."""

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}", re.ASCII)
_NEARLY = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}", re.ASCII)


class FieldError(Exception):
    """A field of a tool's handler, as `handler.command`, that cannot be used: what is wrong with it, and what to write."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")


def names_of(field: str, template: str, known: Collection[str]) -> list[str]:
    """Return the names of a template's placeholders, in order.

    Args:
        field: The field that holds the template, for the message.
        known: The properties of the tool's inputSchema.

    Raises:
        FieldError: A placeholder names no property, or is nearly one, as `{{ name }}`.
    """
    names = _PLACEHOLDER.findall(template)
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise FieldError(field, f"{{{{{name}}}}} is no property of inputSchema; there are: {there}")
    for found in _NEARLY.finditer(template):
        if found[1] in known and not _PLACEHOLDER.fullmatch(found[0]):
            raise FieldError(
                field,
                f"{found[0]} is not replaced; write {{{{name}}}} without spaces, and with letters, digits and _ only",
            )
    return names


def checked(arguments: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are there, with the defaults of the schema for those that are not.

    Raises:
        ToolError: A value has a null byte or is too long.
    """
    schemas = {name: schema_of(properties, name) for name in properties}
    defaults = {name: schema["default"] for name, schema in schemas.items() if "default" in schema}
    present = {name: value for name, value in {**defaults, **arguments}.items() if value is not None}
    for name, value in present.items():
        text = text_of(value)
        if "\0" in text or (not isinstance(value, str) and "\\u0000" in text):
            raise ToolError(f"Parameter {name} has a null byte; leave it out.")
        if len(text) > VALUE_CHARACTERS_MAX:
            raise ToolError(
                f"Parameter {name} has {len(text)} characters, and at most {VALUE_CHARACTERS_MAX} are taken."
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ToolError(
                f"Parameter {name} is not valid Unicode: it has half of a surrogate pair."
            ) from None
    return present


def schema_of(properties: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the schema of a property; an empty one where it is none, or a boolean."""
    schema = properties.get(name)
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def text_of(value: object) -> str:
    """Return a value as the text that is inserted: a string as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fill(template: str, texts: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced. Raises `KeyError` with the name that has no text."""
    return _PLACEHOLDER.sub(lambda found: texts[found[1]], template)
