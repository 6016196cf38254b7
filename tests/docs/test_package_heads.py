"""The docstring of a package names the modules and the classes that it has, and none that were renamed."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"toolcell": ROOT / "client/toolcell", "toolcelld": ROOT / "daemon/toolcelld"}
HEADS = sorted(head for source in SOURCES.values() for head in source.rglob("__init__.py"))
QUOTED = re.compile(r"`([A-Za-z_][A-Za-z0-9_./-]*)`")


@cache
def defined_in(package: Path) -> frozenset[str]:
    """What a package has: its modules and packages, and the names that they define."""
    names: set[str] = set()
    for path in package.rglob("*"):
        if path.is_dir() or path.suffix == ".py":
            names.add(path.stem)
        if path.suffix == ".py":
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(node.name)
                elif isinstance(node, ast.ImportFrom):
                    names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


def is_there(name: str, package: Path) -> bool:
    """Whether a head may name it: something of the package or of one that it names by its path, a file, a command."""
    first, _, rest = name.partition(".")
    source = SOURCES["toolcell" if package.is_relative_to(SOURCES["toolcell"]) else "toolcelld"]
    if first in SOURCES:
        return all(part in defined_in(SOURCES[first]) for part in rest.split(".") if part)
    if "/" in name or "-" in name:
        return any((place / name).exists() for place in (ROOT, source, package)) or not name.endswith(".md")
    if rest:
        return all(part in defined_in(source) for part in name.split("."))
    return name in defined_in(package) or (source / name).is_dir() or (source / f"{name}.py").is_file()


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head.parent.relative_to(ROOT)))
def test_a_head_names_what_there_is(head: Path) -> None:
    text = ast.get_docstring(ast.parse(head.read_text())) or ""
    assert [name for name in QUOTED.findall(text) if not is_there(name, head.parent)] == []


def test_a_name_that_was_renamed_is_found() -> None:
    package = SOURCES["toolcelld"] / "pool"
    assert is_there("quarantine", package)
    assert is_there("worker.main", package)
    assert is_there("toolcell.client.session", package)
    assert not is_there("quarantine_list", package)
    assert not is_there("worker.mains", package)
    assert not is_there("toolcell.client.kept_sessions", package)
