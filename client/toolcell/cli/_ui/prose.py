"""Longer texts for people, fitted into the terminal, and colours; nothing but the standard library is imported for them."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Final, TextIO

COLUMNS_DEFAULT: Final = 80
GAP: Final = 2
LEAST: Final = 8
"""Columns of a heading and short words: less is unreadable."""
RED: Final = "31"  # with green, what can be read on light and on dark

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
    print(prose(text, sys.stdout))
