"""What a terminal shows after a text: its cells with their colours, by the emulator pyte."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tests.cli.pictures.recording import Recording

__all__ = ["Cell", "rows"]

LINES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a terminal."""

    text: str
    colour: str
    bold: bool


def rows(recording: Recording) -> list[list[Cell]]:
    """Return the rows of the screen, from the command line that was typed to the last one that is not empty."""
    pyte: Any = import_module("pyte")  # the group `pictures` has it, which has no types
    screen = pyte.Screen(recording.columns, LINES_MAX)
    pyte.Stream(screen).feed(f"{recording.line}\r\n{recording.text}")
    cells = [
        [
            Cell(screen.buffer[y][x].data, screen.buffer[y][x].fg, screen.buffer[y][x].bold)
            for x in range(recording.columns)
        ]
        for y in range(LINES_MAX)
    ]
    while cells and not any(cell.text.strip() for cell in cells[-1]):
        cells.pop()
    return cells
