"""Tables for people: no borders, aligned, one line a row.

On a terminal the last column gives way; into a pipe or a file nothing is ever cut.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .format import clean
from .streams import write_own

__all__ = ["print_table"]

WIDTH_UNCUT = 100_000  # rich needs a number, and no row of ours comes near


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Headings, then the rows; the columns in `right` are aligned to the right."""
    cells = [[Text(clean(cell)) for cell in row] for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        last = place + 1 == len(headings)
        table.add_column(
            Text(heading),
            justify="right" if heading in right else "left",
            no_wrap=True,
            min_width=None if last else max((row[place].cell_len for row in cells), default=0),
        )
    for row in cells:
        table.add_row(*row)
    on_terminal = sys.stdout.isatty()
    console = Console() if on_terminal else Console(width=WIDTH_UNCUT, color_system=None)
    with console.capture() as capture:
        console.print(table)
    if on_terminal:
        write_own(sys.stdout, capture.get())
        return
    for line in capture.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")
