"""A table put into a TOML file, and taken out again, with all other lines as they are.

A table of its own, `[outer.name]`, can stand behind everything else. Where the file writes `outer` as an inline table
that is not allowed, and reading the result says so.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from .editing import NotPlain

__all__ = ["member", "with_member", "without_member"]

HEADS_MAX = 8
"""Lines that may be the head of the table; for each the whole file is read, and a file of a project may have thousands."""


def member(text: str, outer: str, name: str) -> Any:
    """The value of `name` in the table `outer` of the file; None where it is not. Raises NotPlain."""
    return _tables(_read(text), outer).get(name)


def with_member(text: str, outer: str, name: str, value: Mapping[str, Any]) -> str:
    """The text with the table `outer.name`. Raises NotPlain."""
    before = _read(text)
    if _tables(before, outer).get(name) == value:
        return text
    kept = without_member(text, outer, name)
    line = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{outer}.{name}]", *(f"{key} = {_written(said)}" for key, said in value.items()), ""]
    gap = "" if not kept else line if kept.endswith("\n") else line * 2
    return _checked(
        kept + gap + line.join(lines), {**before, outer: {**_tables(before, outer), name: dict(value)}}
    )


def without_member(text: str, outer: str, name: str) -> str:
    """The text without the table `outer.name`. Raises NotPlain."""
    before = _read(text)
    tables = _tables(before, outer)
    if name not in tables:
        return text
    # Its lines, up to the first that is no `key = value` in one line, and the empty line before it.
    head = rf"[ \t]*\[[ \t]*\"?{re.escape(outer)}\"?[ \t]*\.[ \t]*\"?{re.escape(name)}\"?[ \t]*\][^\r\n]*"
    table = rf"(?:(?<=\n)\r?\n|\A|(?<=\n)){head}(?:\r?\n[ \t]*[\w\"-]+[ \t]*=[^\r\n]*)*(?:\r?\n|\Z)"
    rest = {key: kept for key, kept in tables.items() if key != name}
    expected = {key: kept for key, kept in before.items() if key != outer} | ({outer: rest} if rest else {})
    for found in islice(re.finditer(table, text), HEADS_MAX):  # the first may be a line of a text
        after = text[: found.start()] + text[found.end() :]
        with suppress(NotPlain):
            return _checked(after, expected, {**before, outer: rest})
    raise NotPlain(f"[{outer}.{name}] is written in another way")


def _written(value: object) -> str:
    """A text, a number, a bool, or a list of these: where JSON and TOML agree."""
    return json.dumps(value, ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotPlain(f"it is no TOML: {error}"[:200]) from error
    except (RecursionError, ValueError) as error:  # too deep; a number of too many digits
        raise NotPlain("it is too deep, or has too long a number") from error


def _tables(read: Mapping[str, Any], outer: str) -> dict[str, Any]:
    found = read.get(outer, {})
    if not isinstance(found, dict):
        raise NotPlain(f'"{outer}" is no table')
    return cast("dict[str, Any]", found)


def _checked(text: str, *expected: Mapping[str, Any]) -> str:
    """The text, if it says what it should. Raises NotPlain."""
    if _read(text) not in expected:
        raise NotPlain("its tables are written in another way")
    return text
