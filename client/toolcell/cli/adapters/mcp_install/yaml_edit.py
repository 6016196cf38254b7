"""A mapping put into a YAML file, and taken out again, with all other lines as they are.

No library for YAML is needed for one entry: a file whose first column has nothing but keys, items, comments and empty
lines is cut at lines, and every other file is refused. An entry is read as far as programs write one like ours:
a mapping of scalars and lists of scalars. What is written is JSON's texts, numbers and bools, which are YAML's too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from .editing import NotPlain

__all__ = ["member", "with_member", "without_member"]

_TOP = re.compile(r"""(?:[A-Za-z_][\w.-]*[ ]*:(?=\s|$)|-[ ]|[ ]|\#|\s*$|---\s*$)""")
_PAIR = re.compile(r"""(\s*)(?:"([\w-]+)"|'([\w-]+)'|([\w-]+))[ ]*:(?:[ ]+(.*?))?\s*$""")
_VALUE = re.compile(
    r"""\s*+(?:-[ ]++)*+(?:(?:"[^"]*"|'[^']*'|[^\s"'#][^"'#]*?(?<![ ]))[ ]*+:[ ]++)?(?:[&!]\S*[ ]+)*(["'\[{].*)"""
)
_UNCLOSED = re.compile(r""""(?:[^"\\]|\\.)*\\?|'(?:[^']|'')*""")


def member(text: str, outer: str, name: str) -> Any:
    """The value of `name` in the mapping `outer` of the file; None where it is not. Raises NotPlain."""
    lines = _lines(text)
    place = _find(lines, outer, name)
    return None if place is None else _read(lines[place[0] : place[1]])


def with_member(text: str, outer: str, name: str, value: Mapping[str, Any]) -> str:
    """The text with `name` in the mapping `outer`, which is made where it is not. Raises NotPlain."""
    if member(text, outer, name) == value:
        return text
    lines = _without(text, outer, name)
    line = "\r\n" if "\r\n" in text else "\n"
    block = _block(lines, outer)
    if block is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += line
        return "".join([*lines, f"{outer}:{line}", *_written(name, value, "  ", line)])
    start, end = block
    indent = next((_indent(each) for each in lines[start + 1 : end] if _says(each)), "  ") or "  "
    if lines[start].rstrip().endswith("{}"):  # an empty mapping, as a program writes it
        lines[start] = f"{outer}:{line}"
    return "".join([*lines[: start + 1], *_written(name, value, indent, line), *lines[start + 1 :]])


def without_member(text: str, outer: str, name: str) -> str:
    """The text without `name` in the mapping `outer`, and without `outer` if nothing is left in it. Raises NotPlain."""
    if member(text, outer, name) is None:
        return text
    lines = _without(text, outer, name)
    start, end = _block(lines, outer) or (0, 0)
    if "#" not in lines[start] and not any(line.strip() for line in lines[start + 1 : end]):
        del lines[start:end]
    elif not any(map(_says, lines[start + 1 : end])):  # a key without a value would be null
        lines[start] = lines[start].replace(f"{outer}:", f"{outer}: {{}}", 1)
    return "".join(lines)


def _without(text: str, outer: str, name: str) -> list[str]:
    lines = _lines(text)
    if (place := _find(lines, outer, name)) is not None:
        del lines[place[0] : place[1]]
    return lines


def _lines(text: str) -> list[str]:
    """The lines of a file, with their ends. Raises NotPlain for one that cannot be cut at lines for sure."""
    lines = text.splitlines(keepends=True) if text.strip() else []
    first = True
    for number, line in enumerate(lines, 1):
        if _TOP.match(line) is None or "\t" in _indent(line):
            raise NotPlain(f"it is no plain YAML in line {number}")
        if _goes_on(line):
            raise NotPlain(f"a value goes on behind line {number}")
        if line.startswith("---") and not first:
            raise NotPlain(f"a second document begins in line {number}")
        if first and line[0] in "- " and _says(line):
            raise NotPlain("it is no mapping in lines of its own")
        first = first and not _says(line)
    return lines


def _goes_on(line: str) -> bool:
    """Whether a quoted value or one in brackets begins in a line and does not end there; then what follows is no key."""
    found = _VALUE.match(line.rstrip("\r\n"))
    if found is None:
        return False
    said = found[1]
    if said[0] in "\"'":
        return _UNCLOSED.fullmatch(said) is not None
    return said.count("[") + said.count("{") > said.count("]") + said.count("}")


def _says(line: str) -> bool:
    """Whether a line is more than a comment, an empty line or the mark of a document."""
    return bool(line.strip()) and not line.lstrip().startswith(("#", "---"))


def _indent(line: str) -> str:
    return "".join(takewhile(str.isspace, line.rstrip("\r\n")))


def _block(lines: list[str], outer: str) -> tuple[int, int] | None:
    """From the line of a key in the first column to behind its last line. Raises NotPlain."""
    starts = [
        number
        for number, line in enumerate(lines)
        if (pair := _PAIR.match(line)) is not None and not pair[1] and outer in pair.group(2, 3, 4)
    ]
    if not starts:
        return None
    if len(starts) > 1:
        raise NotPlain(f'"{outer}" is there twice')
    (start,) = starts
    pair = _PAIR.match(lines[start])
    said = re.sub(r"(?:^|\s)#.*", "", (pair[5] if pair is not None else "") or "").strip()
    end = next(
        (n for n in range(start + 1, len(lines)) if _says(lines[n]) and not _indent(lines[n])), len(lines)
    )
    items = end < len(lines) and lines[end].startswith("-")
    if items or said not in ("", "{}") or (said and any(map(_says, lines[start + 1 : end]))):
        raise NotPlain(f'"{outer}" is no mapping in lines of its own')
    return start, end


def _find(lines: list[str], outer: str, name: str) -> tuple[int, int] | None:
    """The lines of an entry. Raises NotPlain."""
    block = _block(lines, outer)
    if block is None:
        return None
    start, end = block
    indent = next((_indent(line) for line in lines[start + 1 : end] if _says(line)), "")
    found: list[tuple[int, int]] = []
    for number in range(start + 1, end):
        line = lines[number]
        if not _says(line) or len(_indent(line)) > len(indent):
            continue
        pair = _PAIR.match(line)
        if _indent(line) != indent or pair is None:
            raise NotPlain(f'"{outer}" is no mapping in lines of its own, in line {number + 1}')
        if name in pair.group(2, 3, 4):
            after = (
                n for n in range(number + 1, end) if _says(lines[n]) and len(_indent(lines[n])) <= len(indent)
            )
            behind = next(after, end)
            while not _says(lines[behind - 1]):  # what stands before the next one is about that
                behind -= 1
            found.append((number, behind))
    if len(found) > 1:
        raise NotPlain(f'"{name}" is there twice')
    return found[0] if found else None


def _read(lines: list[str]) -> object:
    """The value of an entry; its lines, where it is no mapping of scalars and lists."""
    if (pair := _PAIR.match(lines[0])) is not None and pair[5] and not pair[5].startswith("#"):
        return "".join(lines)  # an anchor, which others may name
    read: dict[str, Any] = {}
    last = ""
    for line in filter(_says, lines[1:]):
        pair = _PAIR.match(line)
        if line.lstrip().startswith("- ") and isinstance(read.get(last), list | None):
            read[last] = [*(read.get(last) or []), _scalar(line.lstrip()[2:])]
        elif pair is not None:
            last = next(filter(None, pair.group(2, 3, 4)))
            read[last] = _scalar(pair[5] or "")
        else:
            return "".join(lines)
    return read or "".join(lines)


def _scalar(said: str) -> object:
    said = said.strip()
    try:
        return json.loads(said)
    except ValueError:
        quoted = len(said) > 1 and said[0] == said[-1] == "'"
        return None if said in ("", "~") else said[1:-1].replace("''", "'") if quoted else said


def _written(name: str, value: Mapping[str, Any], indent: str, line: str) -> list[str]:
    said = (f"{key}: {json.dumps(each, ensure_ascii=False)}" for key, each in value.items())
    return [f"{indent}{name}:{line}", *(f"{indent}  {each}{line}" for each in said)]
