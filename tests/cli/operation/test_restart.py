"""`toolcell restart`: a name that no tool has is refused."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Project

TOOL = '''
from toolcell import tool

@tool
def greet(name: str) -> str:
    """Greet."""
    return name
'''


def test_an_unknown_name_is_refused_with_the_names_there_are(daemon: Project) -> None:
    daemon.tool("greet", TOOL)
    done = daemon.run("restart", "gret")
    assert (done.code, done.out) == (3, "")
    assert "sees no tool 'gret'; it sees greet." in done.err


@pytest.mark.parametrize("action", ["restart", "enable", "release"])
def test_a_reason_is_kept_in_the_audit(daemon: Project, action: str) -> None:
    daemon.tool("greet", TOOL)
    daemon.run("call", "greet", "name=x")
    if action == "enable":
        daemon.run("disable", "greet", "--reason", "before")
    elif action == "release":
        daemon.run("quarantine", "greet")
    hostile = "by me\x1b[2J\n" + "y" * 1000
    assert daemon.run(action, "greet", "--reason", hostile).code == 0
    message = ""
    while not message:  # the records are written in batches
        events = daemon.run("audit", "--json").json("audit")["events"]
        said = [each["message"] for each in events if each["type"] == f"decision.{action}"]
        message = next((each for each in said if "yyy" in each), "")
    assert "by me\\x1b[2J\\nyyy" in message
    assert len(message) < 500
    assert "before" not in message


@pytest.mark.slow
def test_a_tool_without_workers_has_none_to_retire(daemon: Project) -> None:
    daemon.tool("greet", TOOL)
    assert daemon.run("restart", "greet").out == "0 workers retired.\n"
    daemon.run("call", "greet", "name=x")
    assert daemon.run("restart", "greet").out == "1 worker retired.\n"
