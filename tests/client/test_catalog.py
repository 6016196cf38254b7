"""What a catalog says as a registry of tools does: sources, counts, names for agents, texts."""

from __future__ import annotations

from toolcell.client import Catalog, Problem, ToolInfo


def info(name: str, scope: str = "local", description: str = "D.", plugin: str = "") -> ToolInfo:
    return ToolInfo(name, description, {}, scope, "", False, False, False, False, plugin=plugin)


def catalog(*tools: ToolInfo, problems: tuple[Problem, ...] = ()) -> Catalog:
    return Catalog(1, {tool.name: tool for tool in tools}, problems)


def test_tools_are_counted_by_their_source() -> None:
    found = catalog(
        info("git-status", "builtin"), info("squad_route", "squad"), info("a"), info("b", "team", plugin="p")
    )
    assert found.counts == {"total": 4, "builtin": 2, "plugin": 2}
    assert [tool.source for tool in found.tools.values()] == ["builtin", "builtin", "plugin", "plugin"]
    assert catalog().counts == {"total": 0, "builtin": 0, "plugin": 0}


def test_an_agent_knows_the_tools_by_their_server() -> None:
    found = catalog(info("lint"), info("git-status", "builtin"))
    assert found.allowed_names() == ["mcp__toolcell__lint", "mcp__toolcell__git-status"]
    assert found.allowed_names("mine") == ["mcp__mine__lint", "mcp__mine__git-status"]


def test_the_number_of_tools_is_told_where_there_are_any() -> None:
    assert catalog().loaded_text() == ""
    assert catalog(info("a")).loaded_text() == "Loaded 1 custom tool"
    assert catalog(info("a"), info("b")).loaded_text() == "Loaded 2 custom tools"


def test_the_context_has_each_tool_with_its_scope_and_first_line() -> None:
    found = catalog(info("lint", description="Run the linter.\nSlowly."), info("fmt", "global", "Format."))
    assert found.context_text() == "Custom Tools:\n  lint (local) — Run the linter.\n  fmt (global) — Format."
    assert catalog().context_text() == ""


def test_errors_are_what_is_broken_and_no_notes() -> None:
    broken = Problem("a.py", "", "broken", "no", 3)
    notes = tuple(Problem("b.py", "b", reason, "…") for reason in ("shadowed", "disabled", "unused"))
    assert catalog(problems=(*notes, broken)).errors == (broken,)
