"""Git's configuration, read by git itself and by us, and what its settings name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcelld.inspector.git_config import GitSetting, parse
from toolcelld.policy.repository import Allowance, named_by, submodules

PIECES = st.sampled_from(
    ["[core]", '[filter "a b"]', '[Filter "x\\"y"]', "hooksPath", "clean", "=", " ", "\t", '"', "\\\n", "\\t", "\\\\",
     '\\"', "#", ";", "a", "./b c", "\n", "\n", "\n[core] pager = less\n", "true"]
)  # fmt: skip


def read_by_git(text: str, tmp_path: Path) -> list[GitSetting] | None:
    """What git reads; None where it refuses the file."""
    file = tmp_path / "config"
    file.write_text(text)
    command = ["git", "config", "--file", str(file), "--list", "-z", "--no-includes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return None
    entries: list[GitSetting] = []
    for one in filter(None, done.stdout.split("\0")):
        name, _, value = one.partition("\n")
        section, _, rest = name.partition(".")
        entries.append(
            GitSetting(section.lower(), rest.rpartition(".")[2].lower(), value if "\n" in one else "true")
        )
    return entries


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[core]\n\thooksPath = .githooks", ".githooks"),
        ("[core]\n\thooksPath = .githooks # ours", ".githooks"),
        ("[core]\n\thooksPath = .githooks ; ours", ".githooks"),
        ("[core] hooksPath = .githooks", ".githooks"),
        ('[core]\n\thooksPath = .git"hooks"', ".githooks"),
        ("[core]\n\thooksPath = .git\\\nhooks", ".githooks"),
        ("[CORE]\n\tHOOKSPATH=.githooks", ".githooks"),
        ('[core]\n\thooksPath = "a # b" c ', "a # b c"),
    ],
)
def test_a_value_is_what_git_makes_of_it(text: str, value: str, tmp_path: Path) -> None:
    assert [*parse(text)] == [GitSetting("core", "hookspath", value)] == read_by_git(text, tmp_path)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(PIECES, max_size=24).map(lambda pieces: "[core]\n" + "".join(pieces)))
def test_what_git_accepts_is_read_as_git_reads_it(tmp_path: Path, text: str) -> None:
    if (entries := read_by_git(text, tmp_path)) is not None:
        assert [*parse(text)] == entries


def named(tmp_path: Path, **files: str) -> set[str]:
    """What a repository names, relative to it; the keys are its files, with `__` for a slash."""
    for name, text in files.items():
        path = tmp_path / "p" / name.replace("__", "/").replace("dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = named_by(str(tmp_path / "p" / ".git"), str(tmp_path / "p"), "/home/u", Allowance())
    return {path.removeprefix(f"{tmp_path}/p/") for path in found}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[core] hooksPath = .githooks", ".githooks"),
        ("[core] hooksPath = ~/hooks", "/home/u/hooks"),
        ("[include] path = ../shared.gitconfig", "shared.gitconfig"),
        ('[includeIf "gitdir:/elsewhere/"] path = x', ".git/x"),
        ("[core] fsmonitor = ./fsm.sh", "fsm.sh"),
        ('[filter "x"] clean = sh tools/clean.sh %f', "tools/clean.sh"),
        ("[diff \"x\"] textconv = './a b' -q", "a b"),
        ('[merge "x"] driver = ./m %O %A %B', "m"),
        ("[alias] st = !bin/st", "bin/st"),
        ('[credential "https://example.com"] helper = !./cred', "cred"),
    ],
)
def test_what_git_would_run_is_named(text: str, path: str, tmp_path: Path) -> None:
    assert path in named(tmp_path, dot_git__config=text)


def test_a_name_is_bytes(tmp_path: Path) -> None:
    found = named(tmp_path, dot_git__config="[core] hooksPath = hönks\u00a0 ")
    assert "hönks\u00a0" in found


def test_includes_within_includes_are_read_and_a_circle_ends(tmp_path: Path) -> None:
    found = named(
        tmp_path,
        dot_git__config="[include] path = ../a",
        a="[include] path = b\n[include] path = a",
        b="[core] hooksPath = deep",
    )
    assert {"a", "b", "deep"} <= found


HOSTILE = """
import itertools, string, sys
from toolcelld.inspector.git_config import parse
for piece in [*string.printable, *map("".join, itertools.product('[]"\\\\\\n =#;a.', repeat=2)), "[a", '[a "', "a=", 'a="', "a=\\\\\\n"]:
    for _ in parse(piece * (2**17 // len(piece))):
        pass
"""


@pytest.mark.slow
def test_no_text_takes_longer_than_its_length() -> None:
    subprocess.run([sys.executable, "-c", HOSTILE], timeout=100, check=True)


def test_modules_of_empty_lines_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitmodules").write_text("\n" * 2**17 + '[submodule "a"]\n\tpath = libs/a # ours\n')
    assert submodules(str(tmp_path / ".git")) == ["libs/a"]
