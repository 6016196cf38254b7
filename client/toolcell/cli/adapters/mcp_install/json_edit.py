"""A member put into a JSON file, and taken out again, with all other bytes as they are.

Editors' files have comments, and commas behind the last member. Both are blanked out before the text is read, so that
all places stay the same, and both stay where they are: what is put in stands behind the comment at the end of a line,
and ends with a comma where the member before it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecoder
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
# What has no end is found as far as it goes: else the search would begin again at each quote, or `/*`, in it.
_STRING = r'"(?:[^"\\\r\n]|\\.)*+"?'
_COMMENT = r"//[^\r\n]*|/\*(?:.*?\*/|.*)"
_COMMENTS = re.compile(f"{_STRING}|{_COMMENT}", re.DOTALL)
_COMMAS = re.compile(rf"{_STRING}|,(?=[ \t\n\r]*[}}\]])")
_END_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=\r?\n))")
_INDENTS = (re.compile(r"\{\r?\n([ \t]+)\""), re.compile(r"\n([ \t]+)\""))


class NotPlain(Exception):
    """The text has another shape than the editor can be sure of; the message says where."""


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
    clean = plain(text)
    found = _inner(clean, _root(clean), outer)
    inside = found.find(name) if found is not None else None
    return _value(clean, inside.value)[0] if inside is not None else None


def is_empty(text: str) -> bool:
    """Whether a file says nothing: an object without members and without comments."""
    return text.split() in (["{}"], ["{", "}"])


def span(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """Where the value is that some names lead to, from the outermost object inwards; None where it is not. Raises NotPlain."""
    clean = plain(text)
    found, place = _root(clean), (0, 0)
    for depth, name in enumerate(path):
        if depth and clean[place[0]] != "{":
            raise NotPlain(f'"{path[depth - 1]}" is no object')
        inside = (_object(clean, place[0]) if depth else found).find(name)
        if inside is None:
            return None
        place = inside.value, inside.end
    return place


def value_at(text: str, at: int) -> Any:
    """The value that begins at some place. Raises NotPlain."""
    return _value(plain(text), at)[0]


def with_member(text: str, outer: str, name: str, value: Mapping[str, Any]) -> str:
    """The text with `name` in the object `outer`, which is made where it is not. Raises NotPlain."""
    if not text.strip():
        return json.dumps({outer: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    clean = plain(text)
    root = _root(clean)
    found = _inner(clean, root, outer)
    inside = found.find(name) if found is not None else None
    if found is None:
        written = _inserted(text, root, 1, outer, {name: value})
    elif inside is None:
        written = _inserted(text, found, 2, name, value)
    elif _value(clean, inside.value)[0] == value:
        return text
    else:
        written = text[: inside.value] + _written(text, 2, value) + text[inside.end :]
    before = _value(clean, root.start)[0]
    return _checked(written, {**before, outer: {**before.get(outer, {}), name: value}})


def without_member(text: str, outer: str, name: str) -> str:
    """The text without `name` in the object `outer`, and without `outer` if nothing is left in it. Raises NotPlain."""
    clean = plain(text)
    root = _root(clean)
    found = _inner(clean, root, outer)
    inside = found.find(name) if found is not None else None
    if found is None or inside is None:
        return text
    before = _value(clean, root.start)[0]
    rest = {key: kept for key, kept in before[outer].items() if key != name}
    around = root.find(outer)
    if inside.start == found.start + 1 and len(found.members) == 1 and clean[inside.end] != ",":
        return _checked(text[: inside.start] + text[inside.end :], {**before, outer: rest})
    if not rest and around is not None and _is_bare(text, found, inside):
        others = {key: kept for key, kept in before.items() if key != outer}
        return _checked(_without(text, clean, root, around), others)
    return _checked(_without(text, clean, found, inside), {**before, outer: rest})


def _is_bare(text: str, found: _Object, inside: _Member) -> bool:
    """Whether an object has that member alone, and no comment."""
    return len(found.members) == 1 and not _inside(text, found, inside).strip(" \t\r\n,")


def _without(text: str, clean: str, found: _Object, inside: _Member) -> str:
    """The text without a member of an object, and without the comma that is not wanted any more."""
    if _is_bare(text, found, inside):
        return text[: found.start + 1] + text[inside.end :].removeprefix(_style(text)[0])
    start = len(text[: inside.start].rstrip(" \t\r\n"))
    behind = _skip(clean, inside.end)
    bare = _blanked(text)
    if (comma := bare.find(",", inside.end, max(behind, inside.end) + 1)) >= 0:
        return text[:start] + text[comma + 1 :]
    # The last one, and no comma behind it: then none is wanted before it.
    place = found.members.index(inside)
    comma = bare.find(",", found.members[place - 1].end, start) if place else -1
    before = text[:comma] + text[comma + 1 : start] if comma >= 0 else text[:start]
    return before + text[inside.end :]


def plain(text: str) -> str:
    """The text as JSON, of the same length: without its comments and the commas behind last members."""
    bare = _blanked(text)

    def blank(found: re.Match[str]) -> str:
        if found[0] != ",":
            return found[0]
        before = found.start() - 1
        while before >= 0 and bare[before] in " \t\r\n":
            before -= 1
        return "," if before < 0 or bare[before] in "{[," else " "

    return _COMMAS.sub(blank, bare)


def _blanked(text: str) -> str:
    """The text with spaces in place of its comments."""

    def blank(found: re.Match[str]) -> str:
        said = found[0]
        endless = said.startswith("/*") and (len(said) < 4 or not said.endswith("*/"))
        return said if said[0] == '"' or endless else re.sub(r"[^\r\n]", " ", said)

    return _COMMENTS.sub(blank, text)


def _inside(text: str, found: _Object, inside: _Member) -> str:
    return text[found.start + 1 : inside.start] + text[inside.end : found.end - 1]


def _checked(text: str, expected: Mapping[str, Any]) -> str:
    """The text, if it says what it should. Raises NotPlain."""
    clean = plain(text)
    if _value(clean, _root(clean).start)[0] != expected:
        raise NotPlain("its comments are in the way")
    return text


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
    names: set[str] = set()
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members:
            at = _skip(text, _past(text, at, ","))
        quote = at
        _past(text, at, '"')
        name, at = _value(text, at)
        value = _skip(text, _past(text, _skip(text, at), ":"))
        _, end = _value(text, value)
        if name in names:
            raise NotPlain(f'"{name}" is there twice')
        names.add(name)
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
    close = line + unit * (depth - 1)
    if (
        not into.members and depth > 1
    ):  # without a line of its own: so it is known again that the object was there
        return f"{text[: into.start + 1]}{new.lstrip()}{text[into.start + 1 :]}"
    if not into.members:
        inside = text[into.start + 1 : into.end - 1]
        remarks = inside.rstrip(" \t\r\n")
        return f"{text[: into.start + 1]}{remarks}{new}{close}{text[into.end - 1 - (0 if remarks else len(inside)) :]}"
    end = into.members[-1].end
    comma = _blanked(text).find(",", end, into.end)  # behind the last member, as some editors have it
    remark = _END_OF_LINE.match(text, max(end, comma + 1))
    place = remark.end() if remark is not None else max(end, comma + 1)
    if comma >= 0:
        return f"{text[:place]}{new},{text[place:]}"
    return f"{text[:end]},{text[end:place]}{new}{text[place:]}"


def _written(text: str, depth: int, value: Mapping[str, Any]) -> str:
    line, unit = _style(text)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line + unit * depth)


def _style(text: str) -> tuple[str, str]:
    """How lines end in a file, and what they begin with."""
    found = next(filter(None, (indent.search(text) for indent in _INDENTS)), None)
    return "\r\n" if "\r\n" in text else "\n", found[1] if found else "  "
