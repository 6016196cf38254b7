"""Draws screens as pictures, in the palettes of a light and a dark terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.cli.pictures.screen import Cell

__all__ = ["PALETTES", "Palette", "draw", "sheet"]

SIZE: Final = 13
WIDTH, HEIGHT = 8, 16
MARGIN: Final = 6
SHEET_HEIGHT: Final = 1500


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a terminal, as xterm's defaults have them."""

    ground: str
    text: str
    colours: Mapping[str, str]


PALETTES: Final = {
    "light": Palette("#ffffff", "#000000", {"red": "#cd0000", "green": "#00a000", "brown": "#cdcd00", "blue": "#0000ee"}),
    "dark": Palette("#000000", "#e5e5e5", {"red": "#cd0000", "green": "#00cd00", "brown": "#cdcd00", "blue": "#0000ee"}),
}  # fmt: skip


def draw(rows: Sequence[Sequence[Cell]], palette: Palette) -> Any:
    """Return the picture of a screen; a line at the right edge shows where the terminal ends."""
    image_module: Any = import_module("PIL.Image")
    draw_module: Any = import_module("PIL.ImageDraw")
    columns = len(rows[0])
    size = (columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN)
    image = image_module.new("RGB", size, palette.ground)
    pen = draw_module.Draw(image)
    fonts = {
        bold: _font("DejaVuSansMono-Bold.ttf" if bold else "DejaVuSansMono.ttf") for bold in (False, True)
    }
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            if cell.text.strip():
                colour = palette.text if cell.colour == "default" else palette.colours[cell.colour]
                place = (MARGIN + x * WIDTH, MARGIN + y * HEIGHT)
                pen.text(place, cell.text, fill=colour, font=fonts[cell.bold])
    pen.rectangle((0, 0, size[0] - 1, size[1] - 1), outline="#808080")
    return image


def sheet(pictures: Sequence[Any], path: Path) -> list[Path]:
    """Put pictures of one width below and beside each other, on as many sheets as are needed; return their paths."""
    image_module: Any = import_module("PIL.Image")
    columns: list[list[Any]] = [[]]
    height = 0
    for picture in pictures:
        if columns[-1] and height + picture.height > SHEET_HEIGHT:
            columns.append([])
            height = 0
        columns[-1].append(picture)
        height += picture.height
    beside = max(1, 1500 // max(picture.width for picture in pictures))
    made: list[Path] = []
    for number in range(0, len(columns), beside):
        shown = columns[number : number + beside]
        widths = [max(picture.width for picture in column) for column in shown]
        tall = max(sum(picture.height for picture in column) for column in shown)
        image = image_module.new("RGB", (sum(widths), tall), "#808080")
        for place, column in enumerate(shown):
            y = 0
            for picture in column:
                image.paste(picture, (sum(widths[:place]), y))
                y += picture.height
        made.append(path.with_name(f"{path.name}-{number // beside + 1}.png"))
        image.save(made[-1])
    return made


def _font(name: str) -> Any:
    matplotlib: Any = import_module("matplotlib")  # its wheel has the font
    return import_module("PIL.ImageFont").truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), SIZE
    )
