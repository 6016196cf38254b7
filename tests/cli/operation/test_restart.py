"""`toolcell restart`: a name that no tool has is refused."""

from __future__ import annotations

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


def test_a_tool_without_workers_has_none_to_retire(daemon: Project) -> None:
    daemon.tool("greet", TOOL)
    assert daemon.run("restart", "greet").out == "0 workers retired.\n"
    daemon.run("call", "greet", "name=x")
    assert daemon.run("restart", "greet").out == "1 worker retired.\n"
