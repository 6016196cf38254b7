"""The docstring of a package names the modules and the classes that it has, and none that were renamed."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {"toolcell": ROOT / "client/toolcell", "toolcelld": ROOT / "daemon/toolcelld"}
HEADS = sorted(head for source in SOURCES.values() for head in source.rglob("__init__.py"))
QUOTED = re.compile(r"`([A-Za-z_][A-Za-z0-9_./-]*)`")


@cache
def defined_by(module: Path) -> frozenset[str]:
    """The names that a module defines or imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


@cache
def defined_in(package: Path) -> frozenset[str]:
    """What a package has: its modules and packages, and the names that they define."""
    modules = [*package.rglob("*.py")]
    names = {part for path in modules for part in (path.stem, path.parent.name)}
    return frozenset(names.union(*map(defined_by, modules)))


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


def test_heads_name_what_there_is() -> None:
    unknown: list[tuple[str, str]] = []
    for head in HEADS:
        text = ast.get_docstring(ast.parse(head.read_text())) or ""
        place = str(head.parent.relative_to(ROOT))
        unknown += [(place, name) for name in QUOTED.findall(text) if not is_there(name, head.parent)]
    assert unknown == []


def test_a_name_that_was_renamed_is_found() -> None:
    package = SOURCES["toolcelld"] / "pool"
    assert is_there("quarantine", package)
    assert is_there("worker.main", package)
    assert is_there("toolcell.client.session", package)
    assert not is_there("quarantine_list", package)
    assert not is_there("worker.mains", package)
    assert not is_there("toolcell.client.kept_sessions", package)
