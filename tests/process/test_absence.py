"""What is said of a file without tools is right: who follows it has a tool, or knows that there will be none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine")]

IN_FUNCTION = """
from fastmcp import FastMCP

def create_server():
    mcp = FastMCP("wiki")

    @mcp.tool
    def search(words: str) -> str:
        return words

    return mcp
"""
REGISTERED = """
def register(server):
    @server.tool()
    def search(words: str) -> str:
        return words
"""
FOLLOWED = {IN_FUNCTION: ("server.py", "search"), REGISTERED: ("parts.py", "search")}


@pytest.mark.parametrize("text", FOLLOWED)
async def test_what_is_to_be_added_gives_a_file_its_tools(daemon: RunningDaemon, text: str) -> None:
    file, tool = FOLLOWED[text]
    path = daemon.project / ".toolcell" / "tools" / file
    path.write_text(text)
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        said, _, added = problem.message.partition("Add at its end:")
        assert (problem.reason, said.count("\n")) == ("unused", 1)
    path.write_text(f"{text}\n{textwrap.dedent(added.strip(' ').lstrip(chr(10)))}\n")
    async with daemon.connect() as session:
        await session.described(30)
        assert session.catalog.problems == ()
        assert (await session.call(tool, {"words": "a"})).text == "a"


@pytest.mark.slow
async def test_that_a_file_has_no_tools_is_told_before_a_package_that_would_be_installed_in_vain(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("server", "import git" + IN_FUNCTION)
    daemon.tool(
        "failing", "from mcp.server import Server\nServer('a')\nraise ValueError('ALLOWED_DIR is required')\n"
    )
    async with daemon.connect() as session:
        failing, server = sorted(session.catalog.problems, key=lambda problem: problem.path)
    assert server.message.startswith("it has no tool: it makes its server in create_server()")
    assert server.message.endswith(
        "Add at its end: server = create_server()\nBesides, line 1 cannot be run: No module named 'git'"
    )
    assert failing.message.startswith("it has no tool: it makes a server of the MCP SDK's low-level")
    assert failing.message.endswith("Besides, line 3 cannot be run: ValueError: ALLOWED_DIR is required")
    daemon.tool("server", f"import git{IN_FUNCTION}server = create_server()\n")
    async with daemon.connect() as session:
        await session.described(30)
        server = next(each for each in session.catalog.problems if each.path.endswith("server.py"))
    assert (server.message.partition("\n")[0], server.line) == ("No module named 'git'", 1)
    assert 'dependencies = ["GitPython"]' in server.message


async def test_what_a_file_imports_of_its_own_package_is_no_package_to_install(daemon: RunningDaemon) -> None:
    daemon.tool("near", "from .config import A\n")
    daemon.tool("named", "from . import config\n")
    daemon.tool("above", "from ..approval import A\n")
    async with daemon.connect() as session:
        found = {problem.path.rpartition("/")[2]: problem.message for problem in session.catalog.problems}
    for name in ("near.py", "named.py"):
        assert found[name].startswith(
            "it imports config, which is not beside it\nPut the files that it imports into "
        )
    assert found["above.py"].startswith("it imports from the directory above")
    assert not any("dependencies" in message or "siblings" in message for message in found.values())


async def test_a_directory_without_tool_files_says_what_its_files_are(daemon: RunningDaemon) -> None:
    tools = daemon.project / ".toolcell" / "tools"
    (tools / "__main__.py").write_text("")
    (tools / "shapes.d.ts").write_text("")
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
    assert (
        "A name that begins with _ is that of a helper. Type declarations have no tools." in problem.message
    )


SCRIPTS = {
    "shapes.ts": ("export type A = string\n", "has no tool: it only declares types\n"),
    "helper.ts": (
        "export const WORD = 'a'\nexport class B {}\n",
        "has no tool: none of its exports is a tool: ",
    ),
    "nothing.ts": ("const a = 1\n", "has no tool: it exports nothing\n"),
    "command.cjs": ("#!/usr/bin/env node\nmodule.exports = {}\n", "has no tool: it is run as a script\n"),
    "later.ts": (
        (
            'import type { ExtensionAPI } from "@mariozechner/pi-coding-agent"\n'
            'export default (pi: ExtensionAPI) => { pi.on("session_start", () => pi.registerTool({})) }\n'
        ),
        "has no tool: it registers its tools after it was loaded",
    ),
    "footer.ts": (
        (
            'import type { ExtensionAPI } from "@mariozechner/pi-coding-agent"\n'
            'export default (pi: ExtensionAPI) => { pi.registerCommand("x", {}) }\n'
        ),
        "has no tool: it extends its host by commands or events",
    ),
    "forgot.ts": ("export default (host) => { host.registered = 1 }\n", "default() returned undefined"),
    "echo.js": (
        'export const registerEcho = (server) => { server.registerTool("echo", {}, () => 1) }\n',
        "has no tool: it registers its tools with a server of MCP that another file makes\n",
    ),
    "hooks.ts": (
        (
            'import type { Plugin } from "@opencode-ai/plugin"\n'
            "export const Hooks: Plugin = async () => ({ event: async () => {} })\n"
        ),
        "has no tool: it is a plugin of OpenCode, a function that OpenCode calls\n",
    ),
    "server.ts": (
        'import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js"\nnew McpServer({})\n',
        "it has no tool: it makes a server of MCP",
    ),
    "vitest.config.js": (
        'import { it } from "vitest"\n',
        "it has no tool: it is the configuration of a program",
    ),
    "lone.test.ts": (
        'import { it } from "vitest"\nit("is", () => {})\n',
        "it has no tool: it is a test",
    ),
    "thread.mjs": (
        'import { parentPort } from "node:worker_threads"\nparentPort.on("message", () => {})\n',
        "it has no tool: it is run in a thread by another file",
    ),
    "near.ts": (
        'import { a } from "./agents.js"\nexport { a }\n',
        "it imports ./agents.js, which is not there\n",
    ),
}
PLUGIN = """
import { type Plugin, tool } from "@opencode-ai/plugin"

export const Clock: Plugin = async ({ directory, worktree }) => ({
  event: async () => {},
  tool: {
    here: tool({
      description: "Here",
      args: { word: tool.schema.string() },
      execute: async ({ word }) => `${word} ${directory === worktree}`,
    }),
  },
})
export default Clock
"""
LOGGER = """
import chalk from "@oh-my-pi/pi-utils/chalk"

export default (pi) => pi.registerTool({
  name: "log",
  description: "Log",
  parameters: pi.typebox.Type.Object({}),
  execute: async () => ({ content: [{ type: "text", text: typeof chalk }] }),
})
"""


@pytest.fixture(scope="module", params=sorted(ENGINES))
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    """A daemon that has one engine."""
    path = f"{ENGINES[request.param].parent}:/usr/bin:/bin"
    with running_daemon(environment={"PATH": path}) as daemon:
        yield daemon


@pytest.fixture
def engine(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    """The daemon, with a new project."""
    with renewed(of_engine):
        yield of_engine


@pytest.mark.slow
async def test_each_shape_of_a_script_without_tools_has_its_sentence(engine: RunningDaemon) -> None:
    for name, (text, _) in SCRIPTS.items():
        (engine.project / ".toolcell" / "tools" / name).write_text(text)
    async with engine.connect() as session:
        await session.described(30)
        found = {problem.path.rpartition("/")[2]: problem.message for problem in session.catalog.problems}
    assert {name: message for name, message in found.items() if SCRIPTS[name][1] not in message} == {}
    assert found.keys() == SCRIPTS.keys()


@pytest.mark.slow
async def test_the_tools_of_a_plugin_of_opencode_1_are_found(engine: RunningDaemon) -> None:
    (engine.project / ".toolcell" / "tools" / "clock.ts").write_text(PLUGIN)
    (engine.project / ".toolcell" / "tools" / "logger.ts").write_text(LOGGER)
    async with engine.connect() as session:
        await session.described(30)
        assert session.catalog.problems == ()
        assert (await session.call("here", {"word": "it is"})).text == "it is true"
        assert (await session.call("log")).text == "function"
