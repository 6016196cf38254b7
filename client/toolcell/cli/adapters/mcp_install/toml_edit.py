"""A server put into a TOML file, and taken out again, with all other bytes as they are.

It is a table of its own at the end of the file, behind an empty line, so that no line before it means something else.
What comes out is read again, and has to say what it should. Servers are tables below one (`[outer.name]`), or a list of
tables that have names (`[[outer]]`); a list that is empty and in one line (`outer = []`) cannot be continued below, and
is filled where it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from toolcell._printable import json_text

from .json_edit import NotPlain

BYTES_MAX: Final = 1024 * 1024
"""Of a file of TOML, whose reader takes a thousand times as long as that of JSON."""

_TABLE: Final = re.compile(r"[ \t]*\[")
_REMARK: Final = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z)")
_PAIR: Final = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)")
"""A letter that JSON escapes in two halves; TOML and YAML have `\\U` for it."""


def read(text: str) -> dict[str, Any]:
    """What a text says. Raises NotPlain."""
    if len(text) > BYTES_MAX:
        raise NotPlain(f"it has more than {BYTES_MAX // 1024} KiB")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotPlain(f"it is no TOML ({error})") from error


def value(said: Any) -> str:
    """A text, a number or a list as TOML and YAML have it."""
    return _PAIR.sub(
        lambda found: f"\\U{ord(bytes.fromhex(found[1] + found[2]).decode('utf-16-be')):08x}", json_text(said)
    )


def member(text: str, outer: str, name: str) -> Any:
    """The server of that name in the file; None where it is not. Raises NotPlain."""
    servers: dict[str, Any] | list[Any] = read(text).get(outer, {})
    if isinstance(servers, list):
        return next((found for found in servers if _named(found, name)), None)
    if not isinstance(servers, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # TOML has other values, too
        raise NotPlain(f"{outer} is no table")
    return servers.get(name)


def lines(outer: str, name: str, entry: Mapping[str, Any], *, listed: bool) -> list[str]:
    """A server as a table."""
    head = f"[[{outer}]]" if listed else f"[{outer}.{name}]"
    return [head, *(f"{key} = {value(said)}" for key, said in entry.items())]


def with_server(text: str, outer: str, name: str, entry: Mapping[str, Any], *, listed: bool) -> str:
    """The text with a server, which replaces one of the same name. Raises NotPlain."""
    text = without_server(text, outer, name)
    before = read(text)
    end = "\r\n" if "\r\n" in text else "\n"
    block = end.join(lines(outer, name, entry, listed=listed))
    there: Any = before.get(outer, [] if listed else {})
    if isinstance(there, list) != listed:
        raise NotPlain(f"{outer} is {'no list' if listed else 'a list'} there")
    wanted = {**before, outer: [*there, dict(entry)] if listed else {**there, name: dict(entry)}}
    empty = _empty(outer).search(text) if before.get(outer) == [] else None
    if empty is not None:
        return checked(f"{text[: empty.end(1)]}{_inline(entry)}{text[empty.end(1) :]}", wanted)
    if text and not text.endswith("\n"):
        return checked(f"{text}{end}{end}{block}", wanted)
    return checked(f"{text}{end if text else ''}{block}{end}", wanted)


def without_server(text: str, outer: str, name: str) -> str:
    """The text without a server. Raises NotPlain."""
    found = member(text, outer, name)
    if found is None:
        return text
    before = read(text)
    servers: dict[str, Any] | list[Any] = before[outer]
    rest: dict[str, Any] | list[Any]
    if isinstance(servers, list):
        rest = [other for other in servers if not _named(other, name)]
    else:
        rest = {key: kept for key, kept in servers.items() if key != name}
    others = {key: kept for key, kept in before.items() if key != outer}
    inline = _inline(found) if isinstance(rest, list) else ""
    if inline and f"[{inline}]" in text:
        return checked(text.replace(inline, "", 1), {**others, outer: rest})
    spans = list(blocks(text, outer, {name}))
    if not spans:
        raise NotPlain("its servers are not written as tables")
    for start, stop in reversed(spans):
        text = _cut(text, start, stop)
    # An empty table that stays is one that was written by itself.
    return checked(text, {**others, outer: rest} if rest or outer in read(text) else others)


def blocks(text: str, outer: str, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield where the tables of some servers are, those below them included, without the remarks that follow."""
    start = stop = -1
    entry: str | None = None  # of a list, which the tables below it belong to
    for begin, end in _sections(text):
        found = _said(text[begin : text.find("\n", begin) + 1 or end], outer)
        if isinstance(found, list):
            of = entry = _name_of(_said(text[begin:end], outer))
        else:
            of = (entry or next(iter(found))) if found else None
        if of in names:
            start, stop = begin if start < 0 else start, end
        elif start >= 0:
            yield start, stop
            start = -1
    if start >= 0:
        yield start, stop


def _sections(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each table begins, and where the last line of it ends that is no remark."""
    start, last, at = -1, 0, 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        if _TABLE.match(text, at):
            if start >= 0:
                yield start, last
            start = at
        if not _REMARK.fullmatch(text, at, end):
            last = end
        at = end
    if start >= 0:
        yield start, last


def _said(text: str, outer: str) -> dict[str, Any] | list[Any]:
    try:
        found: Any = tomllib.loads(text).get(outer)
    except (ValueError, RecursionError):
        found = None
    return cast("dict[str, Any] | list[Any]", found) if isinstance(found, (dict, list)) else {}


def _name_of(entries: dict[str, Any] | list[Any]) -> str | None:
    name: object = entries[0].get("name") if isinstance(entries, list) and entries else None
    return name if isinstance(name, str) else None


def _cut(text: str, start: int, stop: int) -> str:
    """The text without a block, and without the empty line, or end of a line, that was written before it."""
    end = "\r\n" if "\r\n" in text else "\n"
    before, rest = text[:start], text[stop:]
    if before.endswith("\n" + end):
        before = before.removesuffix(end)
    if not rest and not text.endswith("\n"):
        before = before.removesuffix(end)
    return before + rest


def _named(found: object, name: str) -> bool:
    return isinstance(found, dict) and cast("dict[str, Any]", found).get("name") == name


def _inline(entry: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key} = {value(said)}" for key, said in entry.items()) + "}"


def _empty(outer: str) -> re.Pattern[str]:
    return re.compile(rf"^({re.escape(outer)}[ \t]*=[ \t]*\[)\]", re.MULTILINE)


def checked(text: str, expected: Mapping[str, Any]) -> str:
    """The text, if it says what it should. Raises NotPlain."""
    try:
        if read(text) == expected:
            return text
    except NotPlain:
        pass
    raise NotPlain("its tables are written in a way that is not edited")
