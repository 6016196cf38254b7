"""Tables and longer texts for people, fitted into the terminal.

Into a pipe or a file each row is one line. On a terminal the columns that may be wrapped give way; if that is not enough,
the last column stands below each row, and if that is not enough either, each row is a list of its values. So nothing is
cut, and ids, figures and times are never torn apart.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, TextIO

from toolcell._printable import printable

from .format import clean
from .streams import write_own

__all__ = [
    "BELOW",
    "GAP",
    "RED",
    "columns_of",
    "filled",
    "fitted",
    "print_facts",
    "print_prose",
    "print_table",
    "prose",
    "styled",
    "width_of",
    "wrapped",
]

COLUMNS_DEFAULT: Final = 80
GAP: Final = 2
BELOW: Final = "    "
"""Before the last column where it stands below its row."""
LEAST: Final = 8
"""Columns of a heading and short words: less is unreadable."""
WORD: Final = 16
"""The longest word that a column is kept wide enough for; longer ones are folded."""
BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
"""Red and green can be read on light and on dark, unlike yellow and blue."""
BAD: Final = frozenset(
    {"tool_error", "crashed", "timed_out", "limit_exceeded", "internal", "invalid_arguments", "missing"}
)
GOOD: Final = frozenset({"ok", "in use"})
"""How states begin."""

_WORD = re.compile(r"\S+\s*|\s+")
_COMMAND = re.compile(r"(?<=: )(?:toolcell|kill|journalctl|pip) [^:]*$")
"""What a sentence ends with that is to be copied."""
_ITEM = re.compile(r"\s*(?:(?:[-*+•]|\d{1,3}[.)])\s+)?")
"""What the words of a line stand behind: spacing, and the mark of a list."""
_OWN_LINE = re.compile(r"\s|[-*+•]\s|\d{1,3}[.)]\s|\w+:$")
"""How a line begins that is not joined to the one above: spacing, the mark of a list, or a heading."""
_PIECE = re.compile(r"[^/_]*[/_]+|[^/_]+")


def styled(text: str, code: str, stream: TextIO) -> str:
    """Return a text that is printable, in a colour or bold, unless the terminal or NO_COLOR says no."""
    environment = os.environ
    plain = not stream.isatty() or environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb")
    return text if plain or not code else f"\x1b[{code}m{text}\x1b[0m"


def columns_of(stream: TextIO) -> int:
    """Return the columns of a terminal; $COLUMNS, if it is a number, says others."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS_DEFAULT
    except (OSError, ValueError):
        return COLUMNS_DEFAULT


def width_of(text: str) -> int:
    """Return the cells of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(letter) in "WF" else not unicodedata.combining(letter)
        for letter in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken at spaces; a word that has no room in a line is broken after / and _, or folded."""
    lines = [""]
    for word in _WORD.findall(text):
        for piece in (word,) if width_of(word.rstrip()) <= width else _PIECE.findall(word):
            for part in (piece,) if width_of(piece.rstrip()) <= width else piece:
                if width_of(lines[-1] + part.rstrip()) > width:
                    lines.append("")
                lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()] or [""]


def prose(text: str, stream: TextIO) -> str:
    """Return text for a stream: for a terminal its lines are wrapped, and continue below their own beginning.

    A command at the end of a line is not torn apart; it stands on a line of its own if it has no room.
    """
    if not stream.isatty():
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = " " * (len(line) - len(words))
        found = _COMMAND.search(words)
        width = max(columns_of(stream) - len(indent) - GAP, LEAST)
        parts = wrapped(words[: found.start()] if found else words, width)
        if found and width_of(f"{parts[-1]} {found[0]}") <= width:
            parts[-1] += f" {found[0]}"
        elif found:
            parts.append(found[0])
        lines += [indent + parts[0], *(indent + " " * GAP + more for more in parts[1:])]
    return "\n".join(lines)


def filled(text: str, indent: str, stream: TextIO) -> str:
    """Return a text of paragraphs, indented: for a terminal each is filled, for everything else its lines are kept."""
    lines = text.splitlines()
    if stream.isatty():
        joined: list[str] = []
        for above, line in zip(["", *lines], lines, strict=False):
            alone = not line.strip() or _OWN_LINE.match(line)
            ended = not above.strip() or above.startswith(" ") or above.endswith(":")
            if alone or ended:
                joined.append(line)
            else:
                joined[-1] += f" {line}"
        width = columns_of(stream) - len(indent)
        lines = [part for line in joined for part in _hanging(line, width)]
    return "\n".join((indent + line).rstrip() for line in lines)


def _hanging(line: str, width: int) -> Iterator[str]:
    """Yield the lines of a line that may be indented or an item of a list: they continue below its words."""
    words = _ITEM.sub("", line, count=1)
    mark = line[: len(line) - len(words)]
    for number, part in enumerate(wrapped(words, max(width - len(mark), LEAST))):
        yield (" " * len(mark) if number else mark) + part


def fitted(message: str, stream: TextIO) -> str:
    """Return a message for a stream: for a terminal its sentence is wrapped; what follows can be copied, and is kept.

    A sentence that ends with a command, such as "See: toolcell tools", is wrapped wherever it stands.
    """
    first, *rest = message.split("\n")
    lines = [prose(first, stream), *(prose(line, stream) if _COMMAND.search(line) else line for line in rest)]
    return "\n".join(lines)


def print_prose(text: str) -> None:
    """Print text as `prose`."""
    print(prose(text, sys.stdout))


def print_facts(facts: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
    """Print names with their values.

    Args:
        facts: Both.
        indent: The spaces before a name; default: 0.
    """
    pairs = [(name, clean(value)) for name, value in facts]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        _print_fact(" " * indent + name.ljust(width + GAP), value)


def _print_fact(name: str, value: str, name_style: str = "", style: str = "") -> None:
    on_terminal = sys.stdout.isatty()
    columns = columns_of(sys.stdout)
    # Below a long name that takes most of the line, else on the same line.
    below = (
        len(name) - len(name.lstrip()) + len(BELOW)
        if len(name) > max(WORD + GAP, columns // 2)
        else len(name)
    )
    lines = wrapped(value, max(columns - below, LEAST)) if on_terminal else [value]
    first, *rest = lines if below == len(name) or not on_terminal else ("", *lines)
    shown = styled(name.rstrip(), name_style, sys.stdout) + " " * (len(name) - len(name.rstrip()))
    write_own(sys.stdout, (shown + styled(printable(first), style, sys.stdout)).rstrip() + "\n")
    for line in rest:
        print(" " * below + line)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    wrap: Collection[str] = (),
    empty: str = "",
) -> None:
    """Print headings and rows.

    Args:
        headings: The names of the columns.
        rows: Their texts.
        right: The columns that are aligned to the right.
        wrap: The columns that may be narrower than their texts.
        empty: The sentence in place of a table without rows.
    """
    if empty and not rows:
        print_prose(empty)
        return
    cells = [[clean(cell) for cell in row] for row in rows]
    natural = [max(map(width_of, column)) for column in zip(headings, *cells, strict=True)]
    on_terminal = sys.stdout.isatty()
    available = columns_of(sys.stdout) if on_terminal else sum(natural) + GAP * len(natural)
    least = [
        min(width, max(LEAST, len(heading), min(WORD, _longest(column)))) if heading in wrap else width
        for heading, width, *column in zip(headings, natural, *cells, strict=True)
    ]
    for count in (len(headings), len(headings) - 1):
        if count and sum(least[:count]) + GAP * (count - 1) <= available:
            widths = _widths(natural[:count], least[:count], available)
            table = _Columns(headings, widths, right, available)
            table.print(headings, BOLD)
            for row in cells:
                table.print(row)
            return
    _print_records(headings, cells)


def _longest(column: Sequence[str]) -> int:
    return max((width_of(word) for cell in column for word in cell.split()), default=0)


def _widths(natural: Sequence[int], least: Sequence[int], available: int) -> list[int]:
    """Return the widths of columns: the widest that can give way does so first."""
    widths = list(natural)
    while sum(widths) + GAP * (len(widths) - 1) > available:
        place = max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)
        widths[place] -= 1
    return widths


class _Columns:
    """Prints rows as columns; what has no width of its own stands below."""

    def __init__(
        self, headings: Sequence[str], widths: Sequence[int], right: Collection[str], available: int
    ) -> None:
        self._headings = headings
        self._widths = widths
        self._right = right
        self._available = available

    def print(self, row: Sequence[str], style: str = "") -> None:
        """Print a row."""
        cells = row[: len(self._widths)]
        lines = zip_longest(*map(wrapped, cells, self._widths), fillvalue="")
        for line in lines:
            parts: list[str] = []
            for heading, text, width, cell in zip(self._headings, line, self._widths, cells, strict=False):
                padding = " " * (width - width_of(text))
                shown = styled(printable(text), style or _colour(heading, cell), sys.stdout)
                parts.append(padding + shown if heading in self._right else shown + padding)
            write_own(sys.stdout, (" " * GAP).join(parts).rstrip() + "\n")
        for text in row[len(self._widths) :]:
            for below in wrapped(text, max(self._available - len(BELOW), LEAST)) if text else ():
                write_own(sys.stdout, BELOW + styled(printable(below), style, sys.stdout) + "\n")


def _print_records(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as a list of its values, with an empty line between two."""
    width = max(map(len, headings)) + GAP
    for number, row in enumerate(rows):
        if number:
            print()
        for heading, cell in zip(headings, row, strict=True):
            _print_fact(heading.ljust(width), cell, BOLD, _colour(heading, cell))


def _colour(heading: str, cell: str) -> str:
    """The colour of a state."""
    state = cell.partition(" (")[0] if heading == "STATE" else ""
    return RED if state in BAD else GREEN if state in GOOD else ""
