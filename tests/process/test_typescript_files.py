"""What public tool files in TypeScript have, in files of our own: imports from hosts, what a factory calls, and scopes.

tests/libraries/typescript-files.md lists the public files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine")]


@pytest.fixture(scope="module", params=sorted(ENGINES))
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    """A daemon that has one engine."""
    path = f"{ENGINES[request.param].parent}:/usr/bin:/bin"
    with running_daemon(environment={"PATH": path}) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_engine):
        yield of_engine


def write(daemon: RunningDaemon, **texts: str) -> None:
    """Write files below the project: `name` is .omp/tools/name.ts, `a__b` is a/b.ts."""
    for name, text in texts.items():
        path = daemon.project / (f"{name.replace('__', '/')}.ts" if "__" in name else f".omp/tools/{name}.ts")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


EDITOR = """
import { type ExtensionAPI, CustomEditor, // an editor
  Key as Keys, keyHint } from "@mariozechner/pi-tui"
import * as whole from "@bastani/atomic"
import { WIDTH } from "./_widths"
import { label } from "@/label"

class Editor extends CustomEditor { render() { return [] } }
const shortcut = Keys.ctrl("x")
const dynamic = await import("@earendil-works/pi-ai")

export default function (pi: ExtensionAPI) {
  pi.registerShortcut(shortcut, { handler: () => new Editor() })
  pi.registerProvider("mine", {})
  pi.registerMessageRenderer("mine", () => keyHint("x"))
  const off = pi.events.on("other", () => {})
  pi.registerTool({ name: "looks", description: "Looks.", parameters: {}, async execute() {
    return [shortcut, `${Keys.escape}`, typeof Editor, typeof keyHint.deep.name, WIDTH(), label, typeof whole.Type, typeof dynamic.StringEnum].join()
  } })
  pi.registerTool({ name: "draws", description: "Draws.", parameters: {}, async execute() { return new Editor() } })
  pi.registerTool({ name: "hints", description: "Hints.", parameters: {}, async execute() { return keyHint.of("x") } })
}
"""
WIDTHS = """
import { visibleWidth } from "@oh-my-pi/pi-coding-agent"
export const WIDTH = () => { try { return visibleWidth("x") } catch (error) { return error.message } }
"""
LABEL = """
import { getMarkdownTheme } from "@mariozechner/pi-coding-agent"
export const label = typeof getMarkdownTheme
"""


@pytest.mark.slow
async def test_each_name_of_a_host_can_be_imported_and_throws_where_it_is_called(
    daemon: RunningDaemon,
) -> None:
    (daemon.project / "tsconfig.json").write_text('{"compilerOptions": {"paths": {"@/*": ["./src/*"]}}}')
    write(daemon, looks=EDITOR, _widths=WIDTHS, src__label=LABEL)
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        looks = await session.call("looks")
        none = "visibleWidth is a part of the host, and there is none here"
        assert looks.text == f"ctrl+x,escape,function,string,{none},function,object,function"
        for tool, name in (("draws", "CustomEditor"), ("hints", "keyHint.of")):
            outcome = await session.call(tool)
            assert outcome.kind == "tool_error"
            assert f"{name} is a part of the host, and there is none here" in outcome.text


@pytest.mark.slow
async def test_a_factory_that_needs_its_host_when_it_is_loaded_says_for_what(daemon: RunningDaemon) -> None:
    write(
        daemon,
        wraps='import { createBashTool } from "@mariozechner/pi-coding-agent"\nexport default (pi) => { pi.registerTool(createBashTool("/")) }',
        later='export default (pi) => { pi.on("session_start", () => pi.registerTool({})) }',
        asks="export default (pi) => { pi.setActiveTools([]) }",
    )
    async with daemon.connect() as session:
        await session.described()
        said = sorted(problem.message for problem in session.catalog.problems)
        assert said[0].startswith("createBashTool is a part of the host")
        assert said[1].startswith("has no tool: it registers its tools after it was loaded")
        assert said[2].startswith("the host has no setActiveTools() here")


CUTS = """
import { DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, formatSize, getAgentDir, truncateHead, truncateLine, truncateTail, withFileMutationQueue } from "@mariozechner/pi-coding-agent"
export default (pi) => ({
  name: "cuts", description: "Cuts.", parameters: {},
  async execute() {
    const text = ["one", "two", "three"].join("\\n")
    const cut = (result) => [result.content, result.truncated, result.truncatedBy, result.totalLines, result.totalBytes, result.outputLines, result.outputBytes]
    return { content: [{ type: "text", text: JSON.stringify([
      cut(truncateHead(text, { maxLines: 2 })), cut(truncateTail(text, { maxLines: 2 })), cut(truncateHead(text, { maxBytes: 4 })),
      cut(truncateTail(text)), truncateHead("long", { maxBytes: 2 }).firstLineExceedsLimit,
      [900, 2048, 3 * 1024 * 1024].map(formatSize), truncateLine("abcdef", 3), [DEFAULT_MAX_LINES, DEFAULT_MAX_BYTES],
      await withFileMutationQueue("x", async () => "written"), getAgentDir().endsWith("/.pi/agent"),
    ]) }] }
  },
})
"""


@pytest.mark.slow
async def test_what_a_host_has_for_outputs_is_there(daemon: RunningDaemon) -> None:
    write(daemon, cuts=CUTS)
    async with daemon.connect() as session:
        await session.described()
        outcome = await session.call("cuts")
    assert json.loads(outcome.text) == [
        ["one\ntwo", True, "lines", 3, 13, 2, 7],
        ["two\nthree", True, "lines", 3, 13, 2, 9],
        ["one", True, "bytes", 3, 13, 1, 3],
        ["one\ntwo\nthree", False, None, 3, 13, 3, 13],
        True,
        ["900B", "2.0KB", "3.0MB"],
        {"text": "abc... [truncated]", "wasTruncated": True},
        [2000, 51200],
        "written",
        True,
    ]


SCOPE = """
import { tool } from "@opencode-ai/plugin"
const { basename } = require("node:path")
const data = require("./_data.json")
export const used = tool({ description: "Used", args: {}, execute: async () => [basename(__filename), basename(__dirname), data.a].join() })
"""
OWN = """
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
const __filename = fileURLToPath(import.meta.url)
const require = createRequire(import.meta.url)
export default { description: "Own", args: {}, execute: async () => [__filename.endsWith("own.ts"), typeof require("node:fs")].join() }
"""


@pytest.mark.slow
async def test_a_module_has_require_and_its_path_as_in_bun(daemon: RunningDaemon) -> None:
    write(daemon, scope=SCOPE, own=OWN, fails=f"{SCOPE}\nthrow new Error('at line 7')")
    (daemon.project / ".omp" / "tools" / "_data.json").write_text('{"a": "data"}')
    async with daemon.connect() as session:
        await session.described()
        (problem,) = session.catalog.problems
        assert (problem.message.partition("\n")[0], problem.line) == ("at line 7", 7)
        assert (await session.call("scope_used")).text == "scope.ts,tools,data"
        assert (await session.call("own")).text == "true,object"


@pytest.mark.slow
async def test_an_index_gathers_what_other_files_export(daemon: RunningDaemon) -> None:
    one = 'export default { description: "One", args: {}, execute: async () => "one" }'
    write(
        daemon,
        index='export { default as first } from "../../lib/first.js"\nexport * from "../../lib/second"',
        lib__first=one,
        lib__second=f"export const limit = 3\n{one.replace('default', 'const second =')}",
    )
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        assert sorted(session.catalog.tools) == ["index_first", "index_second"]
        assert (await session.call("index_second")).text == "one"
