"""`toolcell config`: what is set, where it is said, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Project


def configured(project: Project, text: str) -> Path:
    path = project.home / ".config" / "toolcell" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.mark.slow
def test_every_value_is_shown_with_the_line_that_says_it(project: Project) -> None:
    path = configured(project, "[daemon]\nworkers = 7\n")
    done = project.run("config", "show")
    assert done.code == 0
    lines = done.out.splitlines()
    assert next(line for line in lines if line.startswith("workers")).split("  # ")[1] == f"{path}:2"
    assert next(line for line in lines if line.startswith("sessions")).split("  # ")[1] == "default"
    origins = {line.rindex("# ") for line in lines if not line.startswith(("[", "protected"))}
    assert len(origins) == 1  # one column, but for a list that is longer than a screen
    shown = project.run("config", "show", "--json").json("config show")
    assert {"key": "daemon.workers", "value": "7", "origin": str(path), "line": 2, "held": ""} in shown[
        "values"
    ]


def test_a_configuration_that_cannot_be_used_is_refused_with_its_line(project: Project) -> None:
    path = configured(project, "[daemon]\nworkrs = 7\n\x1b[2J = 1")
    for words in (["config", "show"], ["config", "check"]):
        done = project.run(*words)
        assert done.code == 1
        assert "\x1b" not in done.out + done.err
        assert f"{path}" in done.out + done.err


@pytest.mark.slow
def test_check_names_rules_about_no_tool_of_the_directory(project: Project) -> None:
    path = configured(
        project, '[tool.there]\ntimeout = 1\n[tool.gone]\ntimeout = 1\n[tool."git_*"]\ntimeout = 1\n'
    )
    project.tool("there", "from toolcell import tool\n@tool(name='there')\ndef f() -> None:\n    'F.'\n")
    done = project.run("config", "check")
    assert done.code == 0
    notes = [line for line in done.out.splitlines() if line.startswith(str(path))]
    assert notes == [f"{path}:4: tool.gone: this directory has no tool of that name"]
    assert done.out.splitlines()[-1] == f"The configuration can be used: {path}."
    assert project.run("config", "check", "--json").json("config check")["notes"] == notes


@pytest.mark.slow
def test_a_file_that_is_named_is_checked_in_place_of_the_users(project: Project) -> None:
    configured(project, "nonsense")
    other = project.home / "other.toml"
    other.write_text("[max]\ntimeout = '1h'\n")
    assert project.run("config", "check", str(other)).code == 0
    assert project.run("config", "check", str(project.home / "none.toml")).code == 1
