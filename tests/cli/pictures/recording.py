"""Types the command lines of scenes on a pseudo terminal, and keeps what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cli.conftest import Project
from tests.cli.pictures.scenes import Scene

__all__ = ["COLUMNS", "Recording", "record"]

COLUMNS = (60, 80, 200)
PLAIN = {"NO_COLOR": "1"}


@dataclass(frozen=True, slots=True)
class Recording:
    """What a terminal was sent, and how the command ended."""

    line: str
    text: str
    code: int
    columns: int
    coloured: bool


def record(project: Project, scene: Scene, columns: int, *, coloured: bool) -> Recording:
    """Run a scene on a terminal of so many columns."""
    values = scene.fill(project) if scene.fill is not None else {}
    words = [word.format(**values) if values else word for word in scene.words]
    with project.screen(*words, columns=columns, env={} if coloured else PLAIN, forked=True) as screen:
        for text, keys in scene.typed:
            screen.until(text)
            screen.type(keys)
        code = screen.end()
    line = " ".join(("$ toolcell", *(f"'{word}'" if " " in word else word for word in words)))
    return Recording(line, screen.text, code, columns, coloured)
