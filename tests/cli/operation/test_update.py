"""`toolcell mcp update`: another version of a server, tried in a cell, shown, and written in its place alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.conftest import Project, user_daemon
from tests.daemons import checked
from tests.process.test_environments import UV, make_wheel

SERVER: Final = """
import json, sys
TOOLS = {tools!r}
def main():
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params", {{}})
        if number is None:
            continue
        result = {{}}
        if message["method"] == "initialize":
            about = {{"name": "served", "version": "1"}}
            result = {{"protocolVersion": params["protocolVersion"], "capabilities": {{}}, "serverInfo": about}}
        elif message["method"] == "tools/list":
            listed = [{{"name": name, "description": text, "inputSchema": {{"type": "object"}}}} for name, text in TOOLS.items()]
            result = {{"tools": listed}}
        elif message["method"] == "tools/call":
            result = {{"content": [{{"type": "text", "text": params["name"]}}]}}
        print(json.dumps({{"jsonrpc": "2.0", "id": number, "result": result}}), flush=True)
"""
POINTS: Final = "[console_scripts]\nserved = served:main\n"
CONFIG: Final = """# mine
trust = "confined"   # of others

[environments]
uv = "{uv}"

[source.served]
mcp = [
  'uvx',  # a launcher
  "served==1.0",\t# pinned
  '--x',
]  # end
priority = 3
"""


def served(wheels: Path, version: str, **tools: str) -> None:
    text = SERVER.format(tools=tools)
    make_wheel(wheels, "served", {"served.py": text, ".dist-info/entry_points.txt": POINTS}, version)


@pytest.fixture
def updating(project: Project, tmp_path: Path) -> Iterator[Project]:
    """A project with a server of version 1.0, of which there is 2.0, and 3.0, which does not start."""
    wheels = tmp_path / "wheels"
    served(wheels, "1.0", same="As it is.", other="As it is.", gone="Going.")
    served(wheels, "2.0", same="As it is.", other="Another.", new="Coming.")
    broken = {"served.py": "raise SystemExit(3)", ".dist-info/entry_points.txt": POINTS}
    make_wheel(wheels, "served", broken, "3.0")
    config = project.home / ".config" / "toolcell" / "config.toml"
    config.parent.mkdir(parents=True)
    with checked(user_daemon(project.home, UV_FIND_LINKS=str(wheels), UV_OFFLINE="1")) as daemon:
        daemon.start()
        config.write_text(CONFIG.format(uv=UV))
        assert project.run("reload").code == 0
        yield project
        config.unlink()
        project.run("reload")
        shutil.rmtree(project.home / "state" / "environments", ignore_errors=True)


@pytest.mark.slow
def test_another_version_is_shown_and_written_in_its_place_alone(updating: Project, tmp_path: Path) -> None:
    config = updating.home / ".config" / "toolcell" / "config.toml"
    before = config.read_text()
    assert updating.run("call", "served_other").out.startswith("other")

    unasked = updating.run("mcp", "update", "served", "2.0")
    assert unasked.code == 3, unasked
    assert "toolcell mcp update --yes served 2.0" in unasked.err
    for line in (
        "As before: served_same",
        "New: served_new",
        "Gone: served_gone",
        "    -As it is.",
        "    +Another.",
    ):
        assert line in unasked.out.splitlines(), unasked.out
    assert config.read_text() == before
    assert updating.run("call", "served_other").code == 0

    for version, why in (("latest", "write one as 1.2.3"), ("2.0;--with", "write one as"), ("9.9", "")):
        refused = updating.run("mcp", "update", "served", version, "--yes")
        assert refused.code != 0, version
        assert why in refused.err
    newest = updating.run("mcp", "update", "served", "--yes")  # which does not start
    assert (newest.code, "It would start: uvx served==3.0 --x" in newest.out) == (1, True), newest
    assert "has no MCP server none" in updating.run("mcp", "update", "none", "1").err
    broken = updating.run("mcp", "update", "served", "3.0", "--yes")
    assert (broken.code, "exited with status 3" in broken.out) == (1, True), broken
    assert config.read_text() == before

    done = updating.run("mcp", "update", "served", "2.0", "--yes", "--json")
    said = done.json("mcp update")
    assert (done.code, said["changed"], said["command"]) == (0, True, ["uvx", "served==2.0", "--x"]), done
    assert config.read_text() == before.replace('"served==1.0"', '"served==2.0"')
    assert updating.run("call", "served_other").out.startswith("other")
    assert updating.run("call", "served_new").out.startswith("new")

    (tmp_path / "wheels" / "served-3.0-py3-none-any.whl").unlink()
    asked = config.read_text()
    has_it = updating.run("mcp", "update", "served")
    assert (has_it.code, has_it.out.splitlines()[-1]) == (0, "That is 2.0, the newest version."), has_it
    config.write_text(asked.replace("served==2.0", "served==1.0"))
    assert updating.run("reload").code == 0
    assert updating.run("mcp", "update", "served", "--yes").code == 0
    assert config.read_text() == asked
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    unknown = updating.run("mcp", "update", "served", "--yes")
    assert (unknown.code, "Its newest version is not known" in unknown.out) == (1, True), unknown
    assert config.read_text() == asked
