"""Where a key stands in a file of TOML, for messages; the parser of the standard library does not tell.

Each line that begins a table or a key is parsed on its own. A line within a text of several lines may look like one
too, so a number is a hint for a reader and nothing else depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from toolcelld.files.toml import TomlError, parse_toml

_HEADER = re.compile(r"\s*\[{1,2}(.+?)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(
    r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def keys_of(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the number of each line that begins a table or a key, with the whole path of it."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _path(header[1])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_path(key[1]))


class KeyLines:
    """The lines of the keys in one file.

    Args:
        text: The content of the file.
    """

    def __init__(self, text: str) -> None:
        self._found: dict[tuple[str, ...], int] = {}
        self._within: dict[tuple[str, ...], int] = {}  # of tables, the first line of what is in them
        for number, place in keys_of(text):
            self._found.setdefault(place, number)
            for length in range(1, len(place)):
                self._within.setdefault(place[:length], number)

    def of(self, path: tuple[str, ...]) -> int | None:
        """Return the line of a key, else of the nearest table around it that has a line; None if there is none.

        A table that has none itself, as `a` where there is only `[a.b]`, has the first line of what is in it.
        """
        for lines in (self._found, self._within):
            for length in range(len(path), 0, -1):
                if path[:length] in lines:
                    return lines[path[:length]]
        return None


def _path(key: str) -> tuple[str, ...]:
    try:
        value: Any = parse_toml(f"{key} = 0".encode())
    except TomlError:
        return ()
    path: list[str] = []
    while isinstance(value, dict):
        (name, value) = next(iter(cast("dict[str, Any]", value).items()))
        path.append(name)
    return tuple(path)
