"""Git's configuration, read by git itself and by us, and what its settings name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcelld.files.git_config import Entry, named_files, parse, read_with_includes
from toolcelld.policy.repository import INDEX_BYTES_MAX, submodules

PIECES = st.sampled_from(
    ["[core]", '[filter "a b"]', '[Filter "x\\"y"]', "hooksPath", "clean", "=", " ", "\t", '"', "\\\n", "\\t", "\\\\",
     '\\"', "#", ";", "a", "./b c", "\n", "\n", "\n[core] pager = less\n", "true"]
)  # fmt: skip


def read_by_git(text: str, tmp_path: Path) -> list[Entry] | None:
    """What git reads; None where it refuses the file."""
    file = tmp_path / "config"
    file.write_text(text)
    command = ["git", "config", "--file", str(file), "--list", "-z", "--no-includes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return None
    entries: list[Entry] = []
    for one in filter(None, done.stdout.split("\0")):
        name, _, value = one.partition("\n")
        section, _, rest = name.partition(".")
        entries.append(
            Entry(section.lower(), rest.rpartition(".")[2].lower(), value if "\n" in one else "true")
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
    assert [*parse(text)] == [Entry("core", "hookspath", value)] == read_by_git(text, tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(PIECES, max_size=24).map(lambda pieces: "[core]\n" + "".join(pieces)))
def test_what_git_accepts_is_read_as_git_reads_it(tmp_path: Path, text: str) -> None:
    if (entries := read_by_git(text, tmp_path)) is not None:
        assert [*parse(text)] == entries


def named(text: str) -> set[str]:
    return {
        path
        for file, entry in read_with_includes("/p/.git/config", lambda _: text.encode(), "/home/u")
        for path in named_files(file, entry, "/p", "/home/u")
    }


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[core] hooksPath = .githooks", "/p/.githooks"),
        ("[core] hooksPath = ~/hooks", "/home/u/hooks"),
        ("[include] path = ../shared.gitconfig", "/p/shared.gitconfig"),
        ('[includeIf "gitdir:/elsewhere/"] path = x', "/p/.git/x"),
        ("[core] fsmonitor = ./fsm.sh", "/p/fsm.sh"),
        ('[filter "x"] clean = sh tools/clean.sh %f', "/p/tools/clean.sh"),
        ("[diff \"x\"] textconv = './a b' -q", "/p/a b"),
        ('[merge "x"] driver = ./m %O %A %B', "/p/m"),
        ("[alias] st = !bin/st", "/p/bin/st"),
        ('[credential "https://example.com"] helper = !./cred', "/p/cred"),
    ],
)
def test_what_git_would_run_is_named(text: str, path: str) -> None:
    assert path in named(text)


def test_includes_within_includes_are_read_and_a_circle_ends() -> None:
    files = {
        "/p/.git/config": b"[include] path = ../a",
        "/p/a": b"[include] path = b\n[include] path = a",
        "/p/b": b"[core] hooksPath = deep",
    }
    read = read_with_includes("/p/.git/config", lambda path: files.get(path, b""), "/home/u")
    assert ("/p/b", Entry("core", "hookspath", "deep")) in [*read]


HOSTILE = """
import itertools, string, sys
from toolcelld.files.git_config import parse
for piece in [*string.printable, *map("".join, itertools.product('[]"\\\\\\n =#;a.', repeat=2)), "[a", '[a "', "a=", 'a="', "a=\\\\\\n"]:
    for _ in parse(piece * (2**17 // len(piece))):
        pass
"""


def test_no_text_takes_longer_than_its_length() -> None:
    subprocess.run([sys.executable, "-c", HOSTILE], timeout=100, check=True)


@pytest.mark.parametrize("word", [b"\x00\x00\xe0\x00", b"\x00\x00\xe0\x00" + b"a" * 70 + b"\x00"])
def test_an_index_of_gitlinks_is_read_up_to_a_bound(tmp_path: Path, word: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes((word * (INDEX_BYTES_MAX // len(word)))[:INDEX_BYTES_MAX])
    program = f"from toolcelld.policy.repository import submodules; submodules({str(tmp_path / '.git')!r})"
    subprocess.run([sys.executable, "-c", program], timeout=10, check=True)


def test_modules_of_empty_lines_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitmodules").write_text("\n" * 2**17 + '[submodule "a"]\n\tpath = libs/a # ours\n')
    assert submodules(str(tmp_path / ".git")) == ["libs/a"]
