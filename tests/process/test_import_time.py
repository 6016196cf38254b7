"""The import of a tool file is like its calls: the same directory, the same words about what a cell refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

from toolcell.client import Kind
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine", "sandbox")]

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


# What a cell refuses


TOOL = "\n@tool\ndef t() -> str:\n    return 'ok'\n"
LOADED = "while a file is loaded to see its tools"
UNWRITTEN = f"cannot be written {LOADED}. Write it in the function of a tool, or below tempfile.gettempdir()."
UNCONNECTED = f"There is no network {LOADED}. Connect in the function of a tool."
REFUSED = {
    "variable": (
        "import os\nKEY = os.environ['MY_API_KEY']",
        "KeyError: 'MY_API_KEY'",
        "has no variable MY_API_KEY. To see which rule says so: toolcell explain t MY_API_KEY",
    ),
    "file": ("open('tool.log', 'a')", "OSError: [Errno 30] Read-only file system", f"tool.log {UNWRITTEN}"),
    "directory": ("import os\nos.mkdir('data')", "OSError: [Errno 30]", f"data {UNWRITTEN}"),
    "path": (
        "import pathlib\npathlib.Path('data.db').touch()",
        "OSError: [Errno 30]",
        f"data.db {UNWRITTEN}",
    ),
    "database": (
        "import sqlite3\nsqlite3.connect('data.db')",
        "OperationalError: unable to open database file",
        f"A database {UNWRITTEN}",
    ),
    "wrapped write": (
        "import os\ntry:\n    os.makedirs('a/b')\nexcept OSError as error:\n    raise RuntimeError('no cache') from error",
        "RuntimeError: no cache",
        f"a {UNWRITTEN}",
    ),
    "home": (
        "import os, pathlib\n(pathlib.Path(os.environ['HOME']) / '.name').read_text()",
        "FileNotFoundError",
        ".name is hidden from the cell of this tool.",
    ),
    "network": (
        "import urllib.request\nurllib.request.urlopen('http://api.example.com/')",
        "URLError",
        UNCONNECTED,
    ),
    "connection": (
        "import socket\nsocket.create_connection(('192.0.2.7', 5432))",
        "OSError",
        UNCONNECTED,
    ),
    "input": ("NAME = input('name? ')", "EOFError", "has no terminal to read from"),
    "getpass": ("import getpass\ngetpass.getpass()", "EOFError", "has no terminal to read from"),
    "program": (
        "import subprocess\nsubprocess.run(['no-such-program'])",
        "FileNotFoundError",
        "finds no program 'no-such-program' in its PATH",
    ),
    "wrapped": (
        "import os\ntry:\n    os.environ['MY_API_KEY']\nexcept KeyError as error:\n    raise RuntimeError('no key') from error",
        "RuntimeError: no key",
        "has no variable MY_API_KEY.",
    ),
}
"""Code of an import, what it raises, and what is said of the cell; in `strict`."""
OWN_FAULTS = {
    "key": "{}['MY_API_KEY']",
    "file": "open('absent.txt')",
    "value": "int('x')",
    "end": "raise EOFError('the archive is cut')",
}


async def problems(daemon: RunningDaemon) -> str:
    async with daemon.connect() as session:
        return "\n".join(problem.message for problem in session.catalog.problems)


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
async def test_what_the_cell_refuses_at_the_import_is_named_as_in_a_call(
    daemon: RunningDaemon, case: str
) -> None:
    configure(daemon, "strict")
    code, raised, said = REFUSED[case]
    daemon.tool("t", f"from toolcell import tool\n{code}\n{TOOL}")
    message = await problems(daemon)
    first, *rest = message.splitlines()
    assert raised in first
    assert said in "\n".join(rest)
    async with daemon.connect() as session:
        refused = await session.call("t")
    assert (refused.kind, refused.cause) == (Kind.REFUSED, "broken_tool")
    assert said in refused.message


LOGS = """
import logging, logging.config, logging.handlers
from toolcell import tool

{}
LOGGER = logging.getLogger("of the file")
LOGGER.setLevel("INFO")
LOGGER.info("loaded")

@tool
def t() -> str:
    LOGGER.info("called")
    return open("tool.log").read()
"""
HANDLERS = {
    "basic": "logging.basicConfig(filename='tool.log')",
    "handler": "logging.getLogger().addHandler(logging.FileHandler('tool.log', 'a', 'utf-8'))",
    "rotating": "logging.getLogger().addHandler(logging.handlers.RotatingFileHandler('tool.log', maxBytes=9_999, backupCount=1))",
    "configured": "logging.config.dictConfig({'version': 1, 'handlers': {'f': {'class': 'logging.FileHandler', 'filename': 'tool.log'}}, 'root': {'handlers': ['f']}})",
}


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_a_file_that_logs_into_a_file_is_described_without_it_and_logs_in_its_calls(
    daemon: RunningDaemon, handler: str, sandbox: str
) -> None:
    configure(daemon, sandbox)
    daemon.tool("t", LOGS.format(HANDLERS[handler]))
    async with daemon.connect() as session:
        assert not session.catalog.problems
        assert (daemon.project / "tool.log").exists() is (sandbox == "none")
        written = (await session.call("t")).check().text
    assert [line.rpartition(":")[2] for line in written.splitlines()][-2:] == ["loaded", "called"]


async def test_a_log_file_that_cannot_be_for_another_reason_is_a_fault_of_the_file(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("t", LOGS.format("logging.basicConfig(filename='absent/tool.log')"))
    assert "No such file or directory" in await problems(daemon)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["fastmcp", "langchain", "package"])
async def test_files_of_other_libraries_and_packages_are_told_the_same(
    daemon: RunningDaemon, library: str
) -> None:
    heads = {
        "fastmcp": "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('x')",
        "langchain": "import os",
        "package": "from .inner import KEY",
    }
    read = "import os\nKEY = os.environ['MY_API_KEY']\n"
    if library == "package":
        (place := daemon.project / ".toolcell/tools/t").mkdir()
        (place / "__init__.py").write_text(heads[library] + TOOL)
        (place / "inner.py").write_text(read)
    else:
        daemon.tool("t", f"{heads[library]}\n{read}")
    assert "has no variable MY_API_KEY." in await problems(daemon)


OF_SCRIPTS = {
    "file": ("fs.appendFileSync('t.log', 'x')", "t.log cannot be written"),
    "directory": ("fs.mkdirSync('data')", "data cannot be written"),
    "wrapped": ("try { fs.mkdirSync('data') } catch (cause) { throw new Error('no cache', { cause }) }", "data cannot be written"),
    "request": ("await fetch('http://api.example.com/')", "There is no network"),
    "own": ("fs.readFileSync('absent')", ""),
    "thrown": ("throw null", ""),
}  # fmt: skip


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_what_a_script_cannot_do_at_the_import_is_said_with_where_it_can(
    of_engine: RunningDaemon, sandbox: str
) -> None:
    with renewed(of_engine):
        configure(of_engine, sandbox)
        for name, (code, _) in OF_SCRIPTS.items():
            export = "export default { description: 'T', args: {}, execute: async () => 'ok' }"
            (of_engine.project / ".toolcell/tools" / f"{name}.ts").write_text(
                f'import fs from "node:fs"\n{code}\n{export}\n'
            )
        async with of_engine.connect() as session:
            found = {Path(problem.path).stem: problem.message for problem in session.catalog.problems}
        for name, (_, says) in OF_SCRIPTS.items():
            if sandbox != "none":
                assert (f"{says} {LOADED}" in found[name]) is bool(says), found[name]
            else:
                assert LOADED not in found.get(name, "")


@pytest.mark.parametrize("case", OWN_FAULTS)
async def test_a_fault_of_the_file_s_own_has_no_word_about_the_cell(daemon: RunningDaemon, case: str) -> None:
    daemon.tool("t", f"from toolcell import tool\n{OWN_FAULTS[case]}\n{TOOL}")
    message = await problems(daemon)
    assert "cell" not in message
    assert LOADED not in message


@pytest.mark.slow
async def test_what_a_file_prints_at_the_import_is_a_remark_and_it_works(daemon: RunningDaemon) -> None:
    daemon.tool("t", "print('loading...')\nfrom toolcell import tool\n" + TOOL)
    daemon.tool(
        "logs",
        "import logging\nfrom toolcell import tool\nlogging.warning('at import')\n"
        + TOOL.replace("def t", "def logs"),
    )
    daemon.tool(
        "errs",
        "import sys\nfrom toolcell import tool\nprint('e', file=sys.stderr)\n"
        + TOOL.replace("def t", "def errs"),
    )
    async with daemon.connect() as session:
        assert {problem.reason for problem in session.catalog.problems} <= {"remark"}
        assert any("'loading...'" in problem.message for problem in session.catalog.problems)
        for name in ("t", "logs", "errs"):
            assert (await session.call(name)).check().text == "ok"


async def test_explain_answers_for_a_file_that_is_broken(daemon: RunningDaemon) -> None:
    daemon.tool("t", "import os\nfrom toolcell import tool\nKEY = os.environ['MY_API_KEY']\n" + TOOL)
    async with daemon.operate() as operator:
        request = operator_pb2.ExplainRequest(directory=str(daemon.project), tool="t", subject="MY_API_KEY")
        (answer,) = (await operator.ask(operator.operator.Explain, request)).explanations
    assert not answer.allowed
    assert answer.remedy.startswith("toolcell config set tool.t.env ")


# Names that only type checkers import


HIDDEN = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nimport typing\n"
ONLY_CHECKED = {
    "parameter": ("if TYPE_CHECKING:\n    from collections.abc import Sequence\n@tool\ndef t(a: Sequence[int]) -> None: ...\n", 6),
    "module": ("if typing.TYPE_CHECKING:\n    import decimal\n@tool\ndef t(a: decimal.Decimal) -> None: ...\n", 6),
    "renamed": ("if TYPE_CHECKING:\n    from decimal import Decimal as Money\n@tool\ndef t(a: Money) -> None: ...\n", 6),
    "import": ("if TYPE_CHECKING:\n    from decimal import Decimal\nONE = Decimal(1)\n@tool\ndef t() -> None: ...\n", 6),
    "fastmcp": (
        "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('x')\nif TYPE_CHECKING:\n    from decimal import Decimal\n@mcp.tool()\ndef t(a: Decimal) -> str: ...\n",
        8,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", ONLY_CHECKED)
async def test_a_name_that_only_type_checkers_import_is_named_with_its_line(
    daemon: RunningDaemon, case: str
) -> None:
    code, line = ONLY_CHECKED[case]
    daemon.tool("t", f"{HIDDEN}from toolcell import tool\n{code}")
    message = await problems(daemon)
    assert f"line {line} imports " in message
    assert "under `if TYPE_CHECKING:`, which is not there when the file runs" in message


@pytest.mark.slow
async def test_such_a_name_in_a_call_is_named_with_its_line_and_others_are_not(daemon: RunningDaemon) -> None:
    daemon.tool(
        "t",
        f"{HIDDEN}from toolcell import tool\nif TYPE_CHECKING:\n    from decimal import Decimal\n"
        "@tool(name='hidden')\ndef hidden() -> None:\n    Decimal(1)\n@tool(name='absent')\ndef absent() -> None:\n    Money(1)\n",
    )
    async with daemon.connect() as session:
        assert "line 6 imports Decimal under `if TYPE_CHECKING:`" in (await session.call("hidden")).text
        assert "TYPE_CHECKING" not in (await session.call("absent")).text
