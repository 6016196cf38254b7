"""Tools that are named like one of an agent's own, without an agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolcell.adapters.own_names import name_in, problems_of, shown_tools
from toolcell.adapters.read_output import READ_OUTPUT
from toolcell.client import Catalog, ToolInfo

OWN = frozenset({"bash", "read"})


def catalog(*names: str, flagged: str = "") -> Catalog:
    tools: dict[str, ToolInfo] = {
        name: replace(READ_OUTPUT, name=name, path=f"/p/{name}.py", overrides_builtin=name == flagged)
        for name in names
    }
    return Catalog(1, tools, ())


def test_a_tool_of_an_agents_name_has_a_name_of_its_own_and_is_found_by_it() -> None:
    one = catalog("bash", "lint")
    shown = shown_tools(one.tools, OWN)
    assert {name: info.name for name, info in shown.items()} == {
        "toolcell_bash": "toolcell_bash",
        "lint": "lint",
    }
    assert [name_in(one, name, OWN) for name in ("toolcell_bash", "lint", "bash")] == ["bash", "lint", "bash"]
    (problem,) = problems_of(one, OWN, "copilot")
    assert (problem.tool, problem.path, problem.reason) == ("bash", "/p/bash.py", "shadowed")
    assert "copilot has a tool bash of its own, which is kept; this one is offered as toolcell_bash" in (
        problem.message
    )


def test_with_the_flag_it_has_its_own_name_and_no_problem() -> None:
    one = catalog("bash", flagged="bash")
    assert list(shown_tools(one.tools, OWN)) == ["bash"]
    assert name_in(one, "toolcell_bash", OWN) == "toolcell_bash"
    assert problems_of(one, OWN, "copilot") == ()


def test_a_tool_that_has_the_other_name_already_is_kept() -> None:
    one = catalog("bash", "toolcell_bash")
    shown = shown_tools(one.tools, OWN)
    assert {name: info.path for name, info in shown.items()} == {"toolcell_bash": "/p/toolcell_bash.py"}
    assert name_in(one, "toolcell_bash", OWN) == "toolcell_bash"
    (problem,) = problems_of(one, OWN, "copilot")
    assert "this one is not offered, as there is a toolcell_bash too" in problem.message


@pytest.mark.parametrize("own", [frozenset[str](), frozenset({"edit"})])
def test_where_no_name_is_taken_nothing_changes(own: frozenset[str]) -> None:
    one = catalog("bash", "read")
    assert shown_tools(one.tools, own) == one.tools
    assert problems_of(one, own, "mcp") == ()
