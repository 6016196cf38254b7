"""A member put into a JSON file, and taken out again, with all other bytes as they are.

The file is another program's. To read it and write it anew would lose what JSON does not mean and people do: the
order, the indentation, how a number is written. So the text is cut open at one place.
A file with comments, or with a comma too many, is not JSON: it is refused, as its places cannot be told for sure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import JSONDecoder
from typing import Any

__all__ = ["NotPlain", "member", "with_member", "without_member"]

_SPACE = re.compile(r"[ \t\n\r]*")
_INDENT = re.compile(r"\{\r?\n([ \t]+)\"")


class NotPlain(Exception):
    """The text is no JSON, or has another shape than expected; the message says where."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int  # of the name's quote
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    """Where an object and its members are in the text."""

    start: int
    end: int  # behind its brace
    members: tuple[_Member, ...]

    def find(self, name: str) -> _Member | None:
        return next((found for found in self.members if found.name == name), None)


def member(text: str, outer: str, name: str) -> Any:
    """The value of `name` in the object `outer` of the file; None where it is not. Raises NotPlain."""
    root = _root(text)
    found = _inner(text, root, outer)
    inside = found.find(name) if found is not None else None
    return _value(text, inside.value)[0] if inside is not None else None


def with_member(text: str, outer: str, name: str, value: Mapping[str, Any]) -> str:
    """The text with `name` in the object `outer`, which is made where it is not. Raises NotPlain."""
    if not text.strip():
        return json.dumps({outer: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    root = _root(text)
    found = _inner(text, root, outer)
    if found is None:
        return _inserted(text, root, 1, outer, {name: value})
    inside = found.find(name)
    if inside is None:
        return _inserted(text, found, 2, name, value)
    if _value(text, inside.value)[0] == value:
        return text
    return text[: inside.value] + _written(text, 2, value) + text[inside.end :]


def without_member(text: str, outer: str, name: str) -> str:
    """The text without `name` in the object `outer`. Raises NotPlain."""
    found = _inner(text, _root(text), outer)
    inside = found.find(name) if found is not None else None
    if found is None or inside is None:
        return text
    place = found.members.index(inside)
    if place > 0:
        start, end = found.members[place - 1].end, inside.end
    elif len(found.members) > 1:
        start, end = inside.start, found.members[1].start
    else:
        start, end = found.start + 1, found.end - 1
    return text[:start] + text[end:]


def _root(text: str) -> _Object:
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        raise NotPlain("it is no JSON object")
    root = _object(text, start)
    if _skip(text, root.end) != len(text):
        raise NotPlain(f"there is more behind its end, {_place(text, root.end)}")
    return root


def _inner(text: str, root: _Object, outer: str) -> _Object | None:
    found = root.find(outer)
    if found is None:
        return None
    if text[found.value] != "{":
        raise NotPlain(f'"{outer}" is no object')
    return _object(text, found.value)


def _object(text: str, start: int) -> _Object:
    members: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members:
            at = _skip(text, _past(text, at, ","))
        quote = at
        _past(text, at, '"')
        name, at = _value(text, at)
        value = _skip(text, _past(text, _skip(text, at), ":"))
        _, end = _value(text, value)
        if any(other.name == name for other in members):
            raise NotPlain(f'"{name}" is there twice')
        members.append(_Member(name, quote, value, end))
        at = _skip(text, end)
    return _Object(start, at + 1, tuple(members))


def _value(text: str, at: int) -> tuple[Any, int]:
    def refuse(constant: str) -> None:
        raise NotPlain(f"{constant} is no JSON")

    try:
        return JSONDecoder(parse_constant=refuse).raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise NotPlain(f"it is no JSON {_place(text, error.pos)}") from error
    except (RecursionError, ValueError) as error:  # too deep; a number of too many digits
        raise NotPlain("it is too deep, or has too long a number") from error


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _past(text: str, at: int, letter: str) -> int:
    if text[at : at + 1] != letter:
        raise NotPlain(f"it is no JSON {_place(text, at)}")
    return at + 1


def _place(text: str, at: int) -> str:
    return f"in line {text.count(chr(10), 0, at) + 1}"


def _inserted(text: str, into: _Object, depth: int, name: str, value: Mapping[str, Any]) -> str:
    line, unit = _style(text)
    new = f"{line}{unit * depth}{json.dumps(name, ensure_ascii=False)}: {_written(text, depth, value)}"
    if into.members:
        end = into.members[-1].end
        return f"{text[:end]},{new}{text[end:]}"
    return f"{text[: into.start + 1]}{new}{line}{unit * (depth - 1)}{text[into.end - 1 :]}"


def _written(text: str, depth: int, value: Mapping[str, Any]) -> str:
    line, unit = _style(text)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line + unit * depth)


def _style(text: str) -> tuple[str, str]:
    """How lines end in a file, and what they begin with."""
    found = _INDENT.search(text)
    return "\r\n" if "\r\n" in text else "\n", found[1] if found else "  "
