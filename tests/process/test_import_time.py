"""The import of a tool file is like its calls: the same directory, the same words about what a cell refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

pytestmark = pytest.mark.anyio

SANDBOXES = ["strict", "baseline", "none"]
HEAD = "import os\nfrom toolcell import tool\nTHEN = os.getcwd()\n"
BODY = "def t() -> list[str]:\n    return [THEN, os.getcwd()]\n"
SETTINGS = """
import json, os
from toolcell import tool

with open("settings.json") as file:
    NAMES = list(json.load(file))

@tool(name="reads", description=", ".join([os.getcwd(), *NAMES]))
def reads() -> list[str]:
    return [*NAMES, os.getcwd()]
"""
FASTMCP = """
import json, os
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("settings")
NAMES = list(json.load(open("settings.json")))

@mcp.tool()
def of_fastmcp() -> list[str]:
    return [*NAMES, os.getcwd()]
"""
SCRIPT = """
import { readFileSync } from "node:fs"
const names = Object.keys(JSON.parse(readFileSync("settings.json", "utf8")))
const then = process.cwd()
export default { description: then, args: {}, execute: async () => JSON.stringify([...names, then, process.cwd()]) }
"""


def configure(daemon: RunningDaemon, sandbox: str, more: str = "") -> None:
    daemon.config.write_text(f'[defaults]\nsandbox = "{sandbox}"\n{more}')
    daemon.reload()


# The directory


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_a_file_is_described_and_loaded_in_the_root_of_its_project_and_called_where_the_session_is(
    daemon: RunningDaemon, sandbox: str
) -> None:
    configure(daemon, sandbox)
    (daemon.project / "settings.json").write_text('{"colour": 1}')
    daemon.tool("reads", SETTINGS)
    daemon.tool("isolated", SETTINGS.replace('name="reads"', 'name="isolated", isolation="call"'))
    daemon.tool("of_fastmcp", FASTMCP)
    (package := daemon.project / ".toolcell/tools/package").mkdir()
    (package / "__init__.py").write_text(
        "import os\nfrom .inner import THEN, tool\n@tool(name='package')\n" + BODY
    )
    (package / "inner.py").write_text(HEAD)
    (below := daemon.project / "below").mkdir()
    root = str(daemon.project)
    async with daemon.connect(directory=below) as session:
        assert not session.catalog.problems
        assert session.catalog.tools["reads"].description == f"{root}, colour"
        for name in ("reads", "isolated", "of_fastmcp"):
            assert (await session.call(name)).check().details == ["colour", str(below)], name
        assert (await session.call("package")).check().details == [root, str(below)]


async def test_a_file_that_is_missing_at_the_import_is_found_when_it_has_been_made(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("reads", SETTINGS)
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert "No such file or directory: 'settings.json'" in problem.message
        (daemon.project / "settings.json").write_text('{"colour": 1}')
        await session.reload()
        assert (await session.call("reads")).check().details == ["colour", str(daemon.project)]


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_a_file_of_the_user_is_described_and_loaded_in_its_own_directory(
    daemon: RunningDaemon, sandbox: str
) -> None:
    own = daemon.directory / "own"
    own.mkdir()
    (own / "settings.json").write_text('{"colour": 1}')
    (own / "reads.py").write_text(SETTINGS)
    configure(daemon, sandbox, f'[source.own]\ndirectory = "{own}"\n')
    async with daemon.connect() as session:
        assert not session.catalog.problems
        assert (await session.call("reads")).check().details == ["colour", str(daemon.project)]


async def test_a_file_that_changes_its_directory_at_the_import_is_called_there(daemon: RunningDaemon) -> None:
    (elsewhere := daemon.project / "elsewhere").mkdir()
    daemon.tool("t", HEAD + "os.chdir('elsewhere')\n@tool\n" + BODY)
    async with daemon.connect() as session:
        assert (await session.call("t")).check().details == [str(daemon.project), str(elsewhere)]


@pytest.fixture(scope="module", params=sorted(ENGINES))
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    with running_daemon(environment={"PATH": str(ENGINES[request.param].parent)}) as daemon:
        yield daemon


@pytest.mark.parametrize("place", [".toolcell/tools", ".opencode/tool"])
async def test_a_script_is_described_and_loaded_in_the_root_of_its_project(
    of_engine: RunningDaemon, place: str
) -> None:
    daemon = of_engine
    with renewed(daemon):
        (daemon.project / "settings.json").write_text('{"colour": 1}')
        (tools := daemon.project / place).mkdir(parents=True, exist_ok=True)
        (tools / "reads.ts").write_text(SCRIPT)
        (below := daemon.project / "below").mkdir()
        async with daemon.connect(directory=below) as session:
            assert not session.catalog.problems
            root = str(daemon.project)
            assert session.catalog.tools["reads"].description == root
            assert json.loads((await session.call("reads")).text) == ["colour", root, str(below)]
