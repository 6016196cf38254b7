"""docs/architecture.md is about the tree as it is: its modules, its layers, its states."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

import pytest

from toolcelld.lifecycle import CALL, WORKER, DaemonState, HealthState, SessionState

from .pages import DOCS, ROOT, read

PAGE: Final = read(DOCS / "architecture.md")
PLACES: Final = {"d": ROOT / "daemon" / "toolcelld", "c": ROOT / "client" / "toolcell"}
PATH: Final = re.compile(r"`([dc])/([\w/]+(?:\.[\w.]+)?)`(?:, `([\w.]+)`)?")


def missing(page: str) -> list[str]:
    """Return the modules of a page, and the names in them, that do not exist."""
    found: list[str] = []
    for place, written, below in PATH.findall(page):
        path, _, names = written.removesuffix(".py").partition(".")
        base = PLACES[place] / path
        file = base if base.is_dir() else base.with_suffix(".mjs" if names == "mjs" else ".py")
        names = below or ("" if names == "mjs" else names)
        if not file.exists():
            found.append(written)
        elif not all(
            re.search(
                rf"^ *(?:(?:async )?(?:class|def) {name}\b|{name}\b(?=: | = ))", read(file), re.MULTILINE
            )
            for name in names.split(".")
            if name
        ):
            found.append(f"{written} {below}")
    return found


def tree(root: str) -> list[str]:
    """Return the names that the page's tree has below one of its roots, in its order."""
    below = PAGE.split(f"\n{root}")[1].split("```")[0].split("\n")[1:]
    names: list[str] = []
    for line in below:
        if not line.startswith("    "):
            break
        first, _, _ = line.strip().partition("   ")
        names += [name.rstrip("/") for name in first.split()]
    return names


def ways(first: str) -> dict[str, set[str]]:
    """Return the block of a machine: each state with those that may come after it."""
    rows = re.search(rf"^{first}\b[^\n]*:\n\n```\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert rows, first
    return {
        state: set(after.split(", "))
        for state, _, after in (row.partition(" → ") for row in rows[1].splitlines())
    }


def test_every_module_and_name_of_the_page_exists() -> None:
    assert len(PATH.findall(PAGE)) > 90
    assert missing(PAGE) == []


def test_a_module_or_name_that_does_not_exist_is_noticed() -> None:
    wrong = "`d/calls/rnu`, `d/calls/run.Rnu`, `d/calls/run.py`, `Run.stpo`, `d/calls/run.Run.stop`"
    assert missing(wrong) == ["calls/rnu", "calls/run.Rnu ", "calls/run.py Run.stpo"]


@pytest.mark.parametrize(
    ("root", "container"), [("client/toolcell/", "toolcell"), ("daemon/toolcelld/", "toolcelld")]
)
def test_the_tree_has_every_layer_in_its_order(root: str, container: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == [container]]
    names = tree(root)
    assert sorted(names) == sorted(
        name for layer in layers for name in layer.split(" | ") if name != "__main__"
    )
    levels = {name: level for level, layer in enumerate(layers) for name in layer.split(" | ")}
    assert [levels[name] for name in names] == sorted(levels[name] for name in names)


@pytest.mark.parametrize(("first", "machine"), [("Call", CALL), ("Worker", WORKER)])
def test_the_ways_between_states_are_those_of_the_code(
    first: str, machine: Mapping[Any, Mapping[Any, Any]]
) -> None:
    coded = {
        state.name: {
            target.name
            for event, target in transitions.items()
            if target is not state and event.name not in {"FAILED", "EXIT"}  # said in a sentence
        }
        for state, transitions in machine.items()
    }
    assert ways(first) == {state: after for state, after in coded.items() if after}


@pytest.mark.parametrize(
    ("name", "states"),
    [("Session", SessionState), ("Daemon", DaemonState), ("A tool file's health", HealthState)],
)
def test_the_lines_of_states_have_the_states_of_the_code(name: str, states: Any) -> None:
    (line,) = re.findall(rf"^{name}: (.*)\.$", PAGE, re.MULTILINE)
    assert re.split(r" [⇄→] ", line) == [state.name for state in states]
