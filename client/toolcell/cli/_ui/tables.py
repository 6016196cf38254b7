"""Tables for people: no borders, aligned.

On a terminal long cells are wrapped; into a pipe or a file each row is one line. Nothing is cut.
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

KEPT_WIDTH = 12  # ids, states and times; what is longer may be wrapped
WIDTH_UNCUT = 100_000  # rich needs a number, and no row of ours comes near


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Headings, then the rows; the columns in `right` are aligned to the right."""
    cells = [[Text(clean(cell)) for cell in row] for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        width = max([len(heading), *(row[place].cell_len for row in cells)])
        kept = width <= KEPT_WIDTH
        table.add_column(
            Text(heading),
            justify="right" if heading in right else "left",
            no_wrap=kept,
            min_width=width if kept else None,
            overflow="fold",
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
