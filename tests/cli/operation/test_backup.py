"""`toolcell backup` and `restore`, around a daemon."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Project, user_daemon

TOOL = "from toolcell import tool\n@tool\ndef t() -> str:\n    return 'done'\n"
DATABASES = ["records.sqlite", "toolcell.sqlite"]


@pytest.mark.slow
def test_the_command_saves_while_the_daemon_runs_and_restores_once_it_has_ended(project: Project) -> None:
    daemon = user_daemon(project.home)
    project.tool("t", TOOL)
    file = project.home / "saved.tar"
    daemon.launch()
    try:
        assert project.run("trust", "--yes").code == 0
        assert project.run("call", "t").out == "done\n"
        done = project.run("backup", str(file), "--json")
        assert done.code == 0, done
        assert done.json("backup")["databases"] == DATABASES
        done = project.run("restore", str(file))
        assert (done.code, "toolcell stop" in done.err) == (1, True), done
    finally:
        daemon.stop()
    done = project.run("restore", str(file), "--state", str(daemon.state), "--force", "--json")
    assert done.code == 0, done
    assert sorted(done.json("restore")["replaced"]) == DATABASES
    daemon.launch()
    try:
        assert str(project.directory) in project.run("trust", "--list").out
        calls = project.run("calls", "--json").json("calls")["calls"]
        assert [call["tool"] for call in calls] == ["t"]
    finally:
        daemon.stop()
