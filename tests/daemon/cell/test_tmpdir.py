"""What a cell has written is removed; a removal that fails is logged, as it runs in the background of the daemon."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from toolcelld.cell import tmpdir
from toolcelld.cell.tmpdir import remove_tree


def written(place: Path) -> Path:
    """A directory that cannot be entered, with a file, beside a link that leads out."""
    tree = place / "tree"
    (tree / "closed").mkdir(parents=True)
    (tree / "closed" / "file").touch()
    (tree / "closed").chmod(0)
    (place / "kept").touch()
    (tree / "link").symlink_to(place / "kept")
    return tree


def test_a_tree_with_closed_directories_is_removed_and_what_its_links_lead_to_is_not(tmp_path: Path) -> None:
    remove_tree(str(written(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_removal_whose_programs_cannot_be_started_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    # As where the user may start no more processes: an OSError.
    monkeypatch.setattr(tmpdir, "PROGRAMS", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        remove_tree(str(tree))
    assert tree.is_dir()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tree} could not be removed completely; it is tried again later."
    ]


def test_the_programs_that_remove_it_are_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PATH that the daemon starts with can begin with directories of a project."""
    links = tmp_path / "node_modules" / ".bin"
    links.mkdir(parents=True)
    for name in ("rm", "chmod"):
        (links / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (links / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{links}:{os.environ['PATH']}")
    (tree := tmp_path / "tree").mkdir()
    remove_tree(str(tree))
    assert not tree.exists()
    assert not (tmp_path / "ran").exists()
