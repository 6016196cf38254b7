"""The built-in `file-reader`: ranges of lines, and no file outside of the project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell import ToolError
from toolcell._packs.builtin import files
from toolcell.testing import FakeContext


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project with a file, a link out of it, and a sibling whose name begins like its own."""
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "three.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2" / "secret").write_text("secret")
    (project / "link").symlink_to(tmp_path / "project-2")
    os.mkfifo(project / "fifo")
    (project / "sub" / "to-file").symlink_to("../../project-2/secret")
    yield project
    (project / "fifo").unlink()


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (None, None, "one\ntwo\nthree\n"),
        (2, None, "two\nthree\n"),
        (None, 2, "one\ntwo\n"),
        (2, 2, "two\n"),
        (3, 99, "three\n"),
    ],
)
def test_a_range_of_lines_is_read(project: Path, first: int | None, last: int | None, text: str) -> None:
    context = FakeContext(directory=project / "sub", worktree=project)
    assert files.file_reader(context, "../three.txt", first, last) == text


def test_a_range_that_is_empty_is_said(project: Path) -> None:
    context = FakeContext(directory=project, worktree=project)
    with pytest.raises(ToolError, match=r"beyond the end: three\.txt has 3 lines"):
        files.file_reader(context, "three.txt", 4)
    with pytest.raises(ToolError, match="endLine 1 is before startLine 2"):
        files.file_reader(context, "three.txt", 2, 1)


@pytest.mark.parametrize(
    "path",
    [
        "a\0b",
        "fifo",
        "../project-2/secret",
        "link/secret",
        "sub/to-file",
        "/etc/passwd",
        "sub/../../project-2/secret",
        ".",
    ],
)
def test_no_path_leads_out_of_the_project(project: Path, path: str) -> None:
    with pytest.raises(ToolError):
        files.file_reader(FakeContext(directory=project, worktree=project), path)


def test_a_file_of_more_than_one_mebibyte_is_refused(project: Path) -> None:
    (project / "large").write_bytes(b"x" * (files.FILE_BYTES_MAX + 1))
    with pytest.raises(ToolError, match="has 1048577 bytes, and at most 1048576 are read"):
        files.file_reader(FakeContext(directory=project, worktree=project), "large")
