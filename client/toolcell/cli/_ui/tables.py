"""Tables and facts for people: rich lays out a table on a terminal, and is imported only there.

Into a pipe or a file each row is one line. On a terminal the columns that may be wrapped give way; if that is not enough,
each row is a list of its values. So nothing is cut, and ids, figures and times are never torn apart.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from toolcell._printable import printable

from .format import clean
from .prose import GAP, LEAST, RED, columns_of, print_prose, styled, width_of, wrapped
from .streams import write_own

BELOW: Final = "    "
"""Before a value that stands below a long name."""
WORD: Final = 16
"""The longest word that a column is kept wide enough for; longer ones are folded."""
BOLD: Final = "1"
GREEN: Final = "32"
STYLES: Final = {RED: "red", GREEN: "green"}  # as rich names them
BAD: Final = frozenset(
    {"tool_error", "crashed", "timed_out", "limit_exceeded", "internal", "invalid_arguments", "missing"}
)
GOOD: Final = frozenset({"ok", "in use"})
"""How states begin."""


def print_facts(facts: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
    """Print names with their values, so many spaces before each."""
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
    """Print headings and rows, or the sentence `empty` where there are none.

    The columns of `right` are aligned to the right, those of `wrap` may be narrower than their texts.
    """
    if empty and not rows:
        print_prose(empty)
        return
    cells = [[clean(cell) for cell in row] for row in rows]
    natural = [max(map(width_of, column)) for column in zip(headings, *cells, strict=True)]
    if not sys.stdout.isatty():
        for row in (headings, *cells):
            sides = zip(headings, row, natural, strict=True)
            padded = (
                (" " * (width - width_of(text)), text, heading in right) for heading, text, width in sides
            )
            line = (" " * GAP).join(
                space + text if is_right else text + space for space, text, is_right in padded
            )
            print(line.rstrip())
        return
    least = [
        min(width, max(LEAST, len(heading), min(WORD, _longest(column)))) if heading in wrap else width
        for heading, width, *column in zip(headings, natural, *cells, strict=True)
    ]
    if sum(least) + GAP * (len(least) - 1) > columns_of(sys.stdout):
        _print_records(headings, cells)
    else:
        write_own(sys.stdout, _laid_out(headings, cells, least, right))


def _laid_out(
    headings: Sequence[str], cells: Sequence[Sequence[str]], least: Sequence[int], right: Collection[str]
) -> str:
    """Return a table as it stands on the terminal. Its texts are texts to rich, without markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="")
    for heading, width in zip(headings, least, strict=True):
        table.add_column(
            Text().append(heading, "bold"),
            justify="right" if heading in right else "left",
            overflow="fold",
            min_width=width,
        )
    for row in cells:
        styles = (STYLES.get(_colour(heading, cell), "") for heading, cell in zip(headings, row, strict=True))
        table.add_row(
            *(Text().append(printable(cell), style) for cell, style in zip(row, styles, strict=True))
        )
    console = Console(
        file=io.StringIO(),
        width=columns_of(sys.stdout),
        height=1,  # with which rich takes the width also for a dumb terminal
        force_terminal=True,
        color_system="standard" if styled("", BOLD, sys.stdout) else None,
        no_color=False,
        legacy_windows=False,
    )
    with console.capture() as written:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in written.get().splitlines())


def _longest(column: Sequence[str]) -> int:
    return max((width_of(word) for cell in column for word in cell.split()), default=0)


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
