"""`toolcell mcp update`: another version of a server, tried in a cell, shown, and written in its place alone."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from unittest import mock

import pytest
from tests.cli.authoring.npm_registry import Registry, registry
from tests.cli.conftest import Project, user_daemon
from tests.daemons import checked
from tests.engines import NODE
from tests.process.test_environments import UV, make_wheel

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli.operation import update as updating_command
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.calls.installation import INSTALL_SECONDS_MAX
from toolcelld.environments.builder import BUILD_SECONDS_MAX

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


SCRIPT: Final = """#!/usr/bin/env node
const tools = {tools}
require("node:readline").createInterface({{ input: process.stdin }}).on("line", line => {{
  const {{ id, method, params }} = JSON.parse(line)
  if (id === undefined) return
  const listed = Object.entries(tools).map(([name, description]) => ({{ name, description, inputSchema: {{ type: "object" }} }}))
  const about = {{ name: "scripted", version: "1" }}
  const result = {{
    initialize: {{ protocolVersion: params?.protocolVersion, capabilities: {{}}, serverInfo: about }},
    "tools/list": {{ tools: listed }},
    "tools/call": {{ content: [{{ type: "text", text: require("dep").word + params?.name }}] }},
  }}[method] ?? {{}}
  console.log(JSON.stringify({{ jsonrpc: "2.0", id, result }}))
}})
"""
NPM: Final = """
[source.scripted]
mcp = ["npx", "-y", "@scope/scripted@1.0.0", "--x"]
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


def scripted(packages: Registry, version: str, **tools: str) -> None:
    files = {"main.js": SCRIPT.format(tools=json.dumps(tools))}
    packages.add("@scope/scripted", files, version=version, program="main.js", needs=("dep",))


def test_an_update_waits_as_long_as_an_installation_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    @asynccontextmanager
    async def asked(*_: object) -> AsyncGenerator[mock.AsyncMock]:
        client = mock.AsyncMock()

        async def ask(*_: object, timeout_seconds: float) -> op.TryServerResponse:
            waited.append(timeout_seconds)
            return op.TryServerResponse(problem="is not tried here")

        client.ask = ask
        yield client

    monkeypatch.setattr(updating_command, "daemon", asked)
    monkeypatch.setattr(updating_command, "operate", asked)
    context = CommandContext(quiet=True, as_json=True)
    asyncio.run(updating_command.update(context, "served", None, yes=False))
    assert waited[0] > max(INSTALL_SECONDS_MAX, BUILD_SECONDS_MAX)


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


@pytest.mark.slow
def test_the_newest_version_of_npm_is_shown_and_started_only_after_a_yes(project: Project) -> None:
    config = project.home / ".config" / "toolcell" / "config.toml"
    config.parent.mkdir(parents=True)
    with registry() as packages, checked(user_daemon(project.home)) as daemon:
        daemon.environment |= {
            "PATH": f"{NODE.parent}:/usr/bin:/bin",
            "npm_config_registry": packages.address,
        }
        packages.add("dep", {"index.js": 'exports.word = "first "'})
        scripted(packages, "1.0.0", same="As it is.", other="As it is.")
        daemon.start()
        config.write_text(NPM)
        assert project.run("reload").code == 0
        assert project.run("prepare").code == 0
        assert project.run("call", "scripted_other").out.startswith("first other")
        packages.add("dep", {"index.js": 'exports.word = "second "'}, version="1.1.0")
        scripted(packages, "1.0.1", same="As it is.", other="Another.", new="Coming.")

        shown = project.run("mcp", "update", "scripted")
        assert shown.code == 3, shown
        for line in (
            "It would start: npx -y @scope/scripted@1.0.1 --x",
            "As before: scripted_same",
            "New: scripted_new",
            "    +Another.",
        ):
            assert line in shown.out.splitlines(), shown.out
        assert project.run("call", "scripted_other").out.startswith("first other"), "what is locked stays"
        assert project.run("mcp", "update", "scripted", "--yes").code == 0
        assert config.read_text() == NPM.replace("1.0.0", "1.0.1")
        for tool in ("other", "new"):
            assert project.run("call", f"scripted_{tool}").out.startswith(f"second {tool}")
        config.unlink()
        project.run("reload")
        shutil.rmtree(project.home / "state" / "packages")
