"""Kinds of tool files are told apart in one table, and other systems are known by name in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final, cast, get_args

import pytest

from toolcell import _file_kinds, tool
from toolcell._authoring.discover import Exports, exports
from toolcell._file_kinds import KINDS, Loader, is_package, kind_of, tool_stem
from toolcelld.catalog.discovery import scan as scanning
from toolcelld.catalog.discovery.sources import Source
from toolcelld.flavours import AGENTS_THAT_READ, FLAVOURS, NOTICES, FlavourName, Notice
from toolcelld.worker.loading.finders import ToolSource
from toolcelld.worker.loading.loader import LOADERS, load

ROOT: Final = Path(__file__).parent.parent
CLIENT: Final = ROOT / "client" / "toolcell"
DAEMON: Final = ROOT / "daemon" / "toolcelld"

SUFFIXES: Final = "|".join(re.escape(suffix) for kind in KINDS for suffix in kind.suffixes)
PACKAGES: Final = "|".join({kind.package for kind in KINDS if kind.package})
A_SUFFIX: Final = re.compile(rf"[*/]*(?:{PACKAGES})?(?:{SUFFIXES})")
"""A suffix of a tool file, or the file that makes a package of tools, and nothing else."""
SUFFIX_TABLE: Final = "client/toolcell/_file_kinds.py"
SUFFIXES_OF_OTHERS: Final = {
    "client/toolcell/adapters/opencode/entry.py": "the file of the plugin, which OpenCode loads",
    "daemon/toolcelld/catalog/discovery/sources.py": "what interpreters and engines import, which is no tool file",
    "daemon/toolcelld/environments/builder.py": "the records of environments are JSON files of the daemon's own",
}

OTHER_NAMES: Final = "|".join(sorted({*AGENTS_THAT_READ, *get_args(FlavourName), "aynd", "gemini", "goose"}))
A_NAME: Final = re.compile(rf"(?<![a-z])(?:{OTHER_NAMES}|\.atomic)(?![a-z])", re.IGNORECASE)
NAME_TABLE: Final = "daemon/toolcelld/flavours.py"
NAMES_OF_OTHERS: Final = {
    "client/toolcell/_servers/listing.py": "the key of a page of a list, which MCP calls a cursor",
    "daemon/toolcelld/inspector/formats.py": "the words that a host has for a project's directory in `.mcp.json`",
    "daemon/toolcelld/config/protected.py": "the default of a list of file names that the configuration has",
}
CORE: Final = (DAEMON, *sorted(CLIENT.glob("_*")), CLIENT / "client")
"""What every agent and system uses; adapters and the command know hosts by their names."""


def modules(*places: Path) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


@cache
def strings(text: str) -> list[str]:
    """The strings of a module, those of its docstrings and comments aside."""
    nodes = list(ast.walk(ast.parse(text)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def in_modules(found: re.Pattern[str], places: Collection[Path], *, whole: bool) -> dict[str, list[str]]:
    """Return by module the strings that match a pattern, or have a match."""
    match = found.fullmatch if whole else found.search
    every = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules(*places)}
    matches = {name: list(filter(match, strings(text))) for name, text in every.items()}
    return {name: matched for name, matched in matches.items() if matched}


def test_no_other_module_tells_a_kind_of_tool_file_by_its_suffix() -> None:
    found = in_modules(A_SUFFIX, (CLIENT, DAEMON), whole=True)
    assert set(found) == {SUFFIX_TABLE, *SUFFIXES_OF_OTHERS}, found


def test_only_what_users_import_lists_its_names() -> None:
    listing = {
        str(path.relative_to(ROOT))
        for path in modules(CLIENT, DAEMON)
        if re.search(r"^ *__all__", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    of_users = re.compile(
        r"client/toolcell/((client/|adapters/\w+/)?__init__|testing|_authoring/libraries/fastmcp_\w+)\.py"
    )
    assert [name for name in sorted(listing) if not of_users.fullmatch(name)] == []


def test_no_other_module_of_the_core_knows_a_system_by_its_name() -> None:
    found = in_modules(A_NAME, CORE, whole=False)
    assert set(found) == {NAME_TABLE, *NAMES_OF_OTHERS}, found


@pytest.mark.parametrize(
    ("code", "looked_for"),
    [
        ('name.endswith((".ts", ".js"))', "suffix"),
        ('f"{path}.py"', "suffix"),
        ('os.path.join(path, "__init__.py")', "suffix"),
        ('glob("*.mjs")', "suffix"),
        ('path.endswith("/index.ts")', "suffix"),
        ('if "omp" in flavours: ...', "name"),
        ('PLACES = (".atomic/tools",)', "name"),
        ('AGENTS = ("Claude Code",)', "name"),
    ],
)
def test_a_suffix_or_a_name_outside_of_the_tables_is_noticed(code: str, looked_for: str) -> None:
    match = A_SUFFIX.fullmatch if looked_for == "suffix" else A_NAME.search
    assert any(map(match, strings(code)))


def test_what_only_looks_like_a_suffix_or_a_name_is_none() -> None:
    code = '"""Of .py files of opencode."""\nx = ("package.json", "a compromise", "atomically", "os.py")'
    assert [text for text in strings(code) if A_SUFFIX.fullmatch(text) or A_NAME.search(text)] == []


def test_no_suffix_belongs_to_two_kinds() -> None:
    suffixes = [suffix for kind in KINDS for suffix in kind.suffixes]
    assert sorted(suffixes) == sorted(set(suffixes))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.language)
def test_every_kind_knows_its_own_files(kind: object) -> None:
    (known,) = [one for one in KINDS if one is kind]
    for suffix in known.suffixes:
        assert kind_of(f"/t/a{suffix}") is known
        assert (tool_stem(f"/t/a{suffix}"), is_package(f"/t/a{suffix}")) == ("a", False)
    for path in known.packages_in("/t/a"):
        assert (tool_stem(path), is_package(path)) == ("a", True)
    assert known.looked_for


def test_every_loader_is_a_module_of_the_worker_or_an_engine() -> None:
    assert {*LOADERS, "engine"} == set(get_args(Loader)) == {kind.loader for kind in KINDS}


def test_a_new_kind_is_an_entry_and_a_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load_text(source: ToolSource, describe: bool, _: tuple[str, str]) -> Exports:
        def greet(name: str) -> str:
            return source.content.decode().format(name=name)

        return exports({"greet": tool(greet)}, source.stem, describe=describe)

    loader = cast("Loader", "text")
    kind = _file_kinds.FileKind("text", (".txt",), loader, package="tool")
    monkeypatch.setattr(scanning, "KINDS", (*KINDS, kind))
    monkeypatch.setitem(_file_kinds.BY_SUFFIX, kind.suffix, kind)
    monkeypatch.setitem(cast("dict[Loader, object]", LOADERS), loader, load_text)
    for name in ("one.txt", "two/tool.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Hello {name}")
    found = scanning.scan((Source("here", "here", (str(tmp_path),)),), str(tmp_path)).files
    assert [(file.stem, is_package(file.path)) for file in found] == [("one", False), ("two", True)]
    loaded = [
        load(
            ToolSource(file.path, file.stem, file.directory, is_package(file.path), file.content),
            describe=True,
        )
        for file in found
    ]
    assert [export.name for one in loaded for export in one.tools] == ["one_greet", "two_greet"]


def test_the_tests_of_a_kind_without_a_runner_are_not_looked_for(tmp_path: Path) -> None:
    for name in ("lint.test.ts", "test_lint.py"):
        (tmp_path / name).touch()
    (tmp_path / _file_kinds.TESTS).mkdir()
    (tmp_path / _file_kinds.TESTS / "lint_test.py").touch()
    assert _file_kinds.tests_of(str(tmp_path / "lint.ts")) == ()
    found = _file_kinds.tests_of(str(tmp_path / "lint.py"))
    assert [str(Path(path).relative_to(tmp_path)) for path in found] == ["test_lint.py", "tests/lint_test.py"]


def test_the_names_that_the_configuration_takes_are_those_of_the_table() -> None:
    names = [flavour.name for flavour in FLAVOURS]
    assert len(names) == len(set(names))
    assert set(get_args(FlavourName)) <= set(names)
    assert set(NOTICES) == set(get_args(Notice))
    assert {str(flavour.presets.get("notice", "plain")) for flavour in FLAVOURS} == set(NOTICES)
