"""Draws every scene: `python -m tests.cli.pictures DIRECTORY [PART OF A NAME…]`, or `make pictures`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.cli.conftest import Project
from tests.cli.pictures.drawing import PALETTES, draw, sheet
from tests.cli.pictures.recording import COLUMNS, Recording, record
from tests.cli.pictures.scenes import HELPS, SCENES, stage
from tests.cli.pictures.screen import rows


def main() -> None:
    """Record all scenes and write contact sheets; without colours the palettes differ in nothing, so one is drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", help="only scenes whose names contain one of these")
    parser.add_argument("--columns", type=int, action="append", help="only terminals of so many columns")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    scenes = [
        scene
        for scene in (*HELPS, *SCENES)
        if not options.names or any(name in scene.name for name in options.names)
    ]
    recordings: list[Recording] = []
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home,
        stage(Project(Path(home), Path(home) / "project")) as project,
    ):
        for columns in options.columns or COLUMNS:
            for coloured in (True, False):
                recordings += [record(project, scene, columns, coloured=coloured) for scene in scenes]
    for columns in options.columns or COLUMNS:
        for coloured, palette in ((True, "light"), (True, "dark"), (False, "light")):
            pictures: list[Any] = [
                draw(rows(recording), PALETTES[palette])
                for recording in recordings
                if (recording.columns, recording.coloured) == (columns, coloured)
            ]
            name = f"{columns}-{palette if coloured else 'plain'}"
            for path in sheet(pictures, options.directory / name):
                print(path)


if __name__ == "__main__":
    main()
