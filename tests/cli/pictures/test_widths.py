"""On a narrow terminal nothing is cut or torn apart, and colours are those that can be read on light and on dark."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.command_lines import PROGRAM
from tests.cli.conftest import Project
from tests.cli.pictures.recording import record
from tests.cli.pictures.scenes import HELPS, SCENES, Scene, stage

from toolcell.cli._ui.prose import RED, width_of
from toolcell.cli._ui.tables import BOLD, GREEN

NARROW, USUAL, WIDE = 60, 80, 200
STYLE = re.compile(r"\x1b\[([\d;]*)m")
FOLDED = 24
"""Longer words, such as paths, have no room in a narrow column and are folded."""
WORDS_OF_AGES = {"now", "now:", "now,", "s", "min", "ago", "ago:", "ago,"}
"""Of two runs, the second one is later."""


@pytest.fixture(scope="module")
def staged() -> Iterator[Project]:
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home,
        stage(Project(Path(home), Path(home) / "project")) as project,
    ):
        yield project


def help_of(words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    command: Any = PROGRAM
    context = typer.Context(command, info_name="toolcell", max_content_width=columns)
    for word in words:
        command = command.commands[word]
        context = typer.Context(command, info_name=word, parent=context, max_content_width=columns)
    return str(command.get_help(context))


@pytest.mark.parametrize("columns", [NARROW, USUAL])
@pytest.mark.parametrize("scene", HELPS, ids=lambda scene: scene.name)
def test_a_help_has_the_same_words_on_a_narrow_terminal(
    scene: Scene, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = scene.words[:-1]
    narrow = help_of(words, columns, monkeypatch)
    assert max(map(len, narrow.splitlines())) <= columns
    assert narrow.split() == help_of(words, WIDE, monkeypatch).split()


def screen_lines(text: str) -> list[str]:
    """The lines of a text, without styles; of what is rewritten in place the last state."""
    lines = STYLE.sub("", text).replace("\r\n", "\n").split("\n")
    return [re.split(r"\r\x1b\[K", line)[-1] for line in lines]


def words_of(lines: list[str]) -> set[str]:
    """The words that do not differ between two runs and have room in a column."""
    found = {word for line in lines for word in line.split()} - WORDS_OF_AGES
    return {word for word in found if not re.search(r"\d", word) and len(word) <= FOLDED and "/" not in word}


@pytest.mark.sampled(one_in=3)
@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_result_keeps_its_words_on_a_narrow_terminal(scene: Scene, staged: Project) -> None:
    narrow = record(staged, scene, NARROW, coloured=True)
    assert narrow.code == scene.code, narrow.text
    assert set(STYLE.findall(narrow.text)) <= {"0", BOLD, RED, GREEN}
    lines = screen_lines(narrow.text)
    if not scene.copied:
        assert [line for line in lines if width_of(line) > NARROW] == []
        wide = record(staged, scene, WIDE, coloured=True)
        assert words_of(screen_lines(wide.text)) - words_of(lines) == set()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["doctor", "calls", "tools NAME", "tools UNKNOWN"])
def test_without_colours_no_style_is_printed(name: str, staged: Project) -> None:
    (scene,) = [scene for scene in SCENES if scene.name == name]
    assert "\x1b" not in record(staged, scene, NARROW, coloured=False).text
    assert STYLE.search(record(staged, scene, NARROW, coloured=True).text)
