"""The index of a repository: its submodules as git itself lists them, in each version and with either hash."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.inspector.git_index import gitlinks
from toolcelld.policy.repository import INDEX_BYTES_MAX, submodules

NAMES = ("a", "libs/a", "libs/abc", "libs/ünïcode", "z" * 200)
LINK = {"sha1": "1" * 40, "sha256": "1" * 64}


def git(directory: Path, *words: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], cwd=directory, env=environment, check=True, timeout=30)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_submodules_are_those_that_git_has(tmp_path: Path, version: int, algorithm: str) -> None:
    git(tmp_path, "init", "--quiet", f"--object-format={algorithm}")
    for name in ("b", "libs/ab", "libs/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", ".")
    if version == 3:  # it has entries with more flags
        git(tmp_path, "rm", "--quiet", "--cached", "b")
        git(tmp_path, "add", "--intent-to-add", "b")
    for name in NAMES:
        git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{LINK[algorithm]},{name}")
    if version == 4:
        git(tmp_path, "update-index", "--index-version", "4")
    raw = (tmp_path / ".git" / "index").read_bytes()
    assert raw[4:8] == version.to_bytes(4, "big")
    assert {name.decode() for name in gitlinks(raw)} == {*NAMES}
    assert set(submodules(str(tmp_path / ".git"))) == {*NAMES}


@given(st.binary(max_size=400), st.sampled_from([2, 3, 4]), st.integers(0, 2**32 - 1))
def test_any_bytes_are_an_index_or_none(rest: bytes, version: int, count: int) -> None:
    for name in gitlinks(b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + rest):
        assert b"\0" not in name


WORDS: Final = (b"\x00\x00\xe0\x00", b"\x00", b"\x00\x00\xe0\x00" + b"a" * 70 + b"\x00", b"\xff")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("word", WORDS)
def test_an_index_is_read_within_its_time(tmp_path: Path, version: int, word: bytes) -> None:
    (tmp_path / ".git").mkdir()
    head = b"DIRC" + version.to_bytes(4, "big") + b"\xff" * 4
    (tmp_path / ".git" / "index").write_bytes(
        (head + word * (INDEX_BYTES_MAX // len(word)))[:INDEX_BYTES_MAX]
    )
    submodules(str(tmp_path / ".git"))  # an inspector that takes longer has it raise
