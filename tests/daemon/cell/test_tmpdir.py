"""What a cell has written is removed; a removal that fails is logged, as it runs in the background of the daemon."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

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
    monkeypatch.setenv("PATH", str(tmp_path))  # as where the user may start no more processes, an OSError
    with caplog.at_level(logging.WARNING):
        remove_tree(str(tree))
    assert tree.is_dir()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tree} could not be removed completely; it is tried again later."
    ]
