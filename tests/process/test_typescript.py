"""Tools in TypeScript and JavaScript through real daemons, one for each engine: found, described, called, stopped."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

from toolcell.client import Outcome, Question, Session, question_service
from toolcell.client.events import Log, Metadata, Progress, Update
from toolcell_proto.v1 import operator_pb2
from toolcelld.worker.engine import SOURCES

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine")]

OPENCODE = """
import { tool } from "@opencode-ai/plugin"
import type { Unit } from "./_units"
import { Repeat, text } from "./_units"

export default tool({
  description: "Repeat a text",
  args: {
    text: tool.schema.string().describe("what is repeated"),
    times: tool.schema.number().int().default(2),
    upper: tool.schema.string().transform((it) => it.toUpperCase()).optional(),
  },
  async execute(args, context) {
    const unit: Unit = { text }
    return [args.text.repeat(args.times), args.upper, unit.text, Object.keys(args)].join("|")
  },
})
export const other = tool({ description: "Other", args: {}, execute: async () => "other" })
"""
UNITS = """
export interface Unit { text: string }
export type Repeat = number
enum Size { Small = 3 }
export const text = `size ${Size.Small}`
"""
PLAIN = """
module.exports = {
  description: "Plain",
  parameters: { type: "object", properties: { q: { type: "string" }, k: { type: "integer", default: 3 } }, required: ["q"] },
  execute: (args, context) => args,
}
"""
TYPEBOX = """
import { Type } from "@sinclair/typebox"
export const find = {
  name: "seek",
  description: "TypeBox",
  parameters: Type.Object({ q: Type.String({ minLength: 2, description: "words" }), k: Type.Optional(Type.Integer()) }),
  execute: (args) => ({ content: [{ type: "text", text: JSON.stringify(args) }], details: { found: 1 } }),
}
export default find
export const limit = 3
"""
ZOD3 = """
import { tool } from "@atomic/plugin"
import { z } from "zod/v3"
export default tool({
  description: "Zod 3",
  args: { a: z.string().describe("A"), n: z.number().default(5), o: z.string().optional() },
  execute: async (args) => JSON.stringify(args),
})
export const properties = { description: "fields", args: { q: { type: "string", description: "Q" } }, execute: (args) => args.q }
"""


# Each engine takes half a minute, so one of them is left to the gate.
@pytest.fixture(scope="module", params=["bun", pytest.param("node", marks=pytest.mark.slow)])
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    path = f"{ENGINES[request.param].parent}:/usr/bin:/bin"
    variables = {"PATH": path, "NODE_OPTIONS": "--nowhere", "BUN_OPTIONS": "--nowhere", "PASSED": "on"}
    with running_daemon(environment=variables) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_engine):
        yield of_engine


def write(daemon: RunningDaemon, **files: str) -> Path:
    """Write tool files; `name_ts` is name.ts."""
    place = daemon.project / ".opencode" / "tools"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        path = place / f"{stem.replace('__', '/')}.{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return place


def execute(body: str, args: str = "{}") -> str:
    """A file with one tool whose function has this body."""
    return f'export default {{ description: "It", args: {args}, async execute(args, context) {{ {body} }} }}'


async def text_of(session: Session, tool: str, **arguments: object) -> str:
    outcome = await session.call(tool, arguments)
    assert outcome.ok, outcome
    return outcome.text


def configure(daemon: RunningDaemon, text: str) -> None:
    daemon.config.write_text(text)
    assert not daemon.ask(
        "Operator/Reload", operator_pb2.ReloadRequest(), operator_pb2.ReloadResponse
    ).problems


@pytest.mark.slow
async def test_tools_of_every_kind_are_described_and_called(daemon: RunningDaemon) -> None:
    write(daemon, repeat_ts=OPENCODE, _units_ts=UNITS, plain_js=PLAIN, box_mts=TYPEBOX, old__index_ts=ZOD3)
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        tools = session.catalog.tools
        assert sorted(tools) == ["old", "old_properties", "plain", "repeat", "repeat_other", "seek"]
        assert tools["repeat"].description == "Repeat a text"
        schema = tools["repeat"].input_schema
        assert schema["properties"]["text"] == {"type": "string", "description": "what is repeated"}
        assert schema["properties"]["times"]["default"] == 2
        assert schema["required"] == ["text"]
        assert tools["seek"].input_schema["properties"]["q"]["description"] == "words"
        old = tools["old"].input_schema
        assert old["properties"]["a"] == {"type": "string", "description": "A"}
        assert (old["properties"]["n"]["default"], old["required"]) == (5, ["a"])
        assert tools["old_properties"].input_schema["properties"]["q"] == {
            "type": "string",
            "description": "Q",
        }
        unknown = await text_of(session, "repeat", text="ab", upper="c", unknown=1)
        assert unknown == "abab|C|size 3|text,times,upper"
        assert await text_of(session, "repeat_other") == "other"
        assert json.loads(await text_of(session, "plain", q="x")) == {"q": "x", "k": 3}
        assert json.loads(await text_of(session, "old", a="x")) == {"a": "x", "n": 5}
        assert await text_of(session, "old_properties", q="y") == "y"
        found = await session.call("seek", {"q": "xy"})
        assert (found.text, found.details) == ('{"q":"xy"}', {"found": 1})


@pytest.mark.slow
async def test_wrong_arguments_are_named_and_the_tool_does_not_run(daemon: RunningDaemon) -> None:
    write(daemon, repeat_ts=OPENCODE, _units_ts=UNITS, plain_js=PLAIN, box_mts=TYPEBOX, old__index_ts=ZOD3)
    async with daemon.connect() as session:
        for tool, arguments, place in (
            ("repeat", {"times": 1.5}, "times: "),
            ("plain", {"q": 1}, "q: "),
            ("seek", {"q": "x"}, "q: "),
            ("old", {"n": "x"}, "a: "),
            ("old_properties", {"q": "x", "r": 1}, "r"),
        ):
            outcome = await session.call(tool, arguments)
            assert (outcome.kind, outcome.ran) == ("invalid_arguments", False), outcome
            assert place in outcome.text
            assert "the tool did not run" in outcome.text


async def test_a_call_gets_its_context_and_tells_what_it_does(daemon: RunningDaemon) -> None:
    body = """
        context.metadata({ title: "Halfway", metadata: { a: 1 } })
        context.metadata({ metadata: { b: 2 } })
        context.progress(1, 2, "half")
        console.log("printed")
        await new Promise((resolve) => setTimeout(resolve, 60))
        const { abort, metadata, update, progress, ask, request, extra, ...fields } = context
        return { title: "Whole", output: JSON.stringify({ ...fields, aborted: abort.aborted, cwd: process.cwd(), option: process.env.NODE_OPTIONS }), metadata: { c: 3 } }
    """
    write(daemon, it_ts=execute(body))
    async with daemon.connect() as session:
        call = session.call("it")
        events = [event async for event in call]
        outcome = await call
        assert outcome.ok, outcome
        told = json.loads(outcome.text)
        assert set(told) == {
            "sessionID",
            "messageID",
            "callID",
            "agent",
            "directory",
            "worktree",
            "aborted",
            "cwd",
        }
        assert told["directory"] == told["cwd"] == str(daemon.project)
        assert told["sessionID"]
        assert told["callID"]
        assert outcome.metadata["c"] == 3
        assert [event.text.strip() for event in events if isinstance(event, Log)] == ["printed"]
        assert [
            (event.done, event.total, event.message) for event in events if isinstance(event, Progress)
        ] == [(1, 2, "half")]
        (metadata,) = [event for event in events if isinstance(event, Metadata)]
        assert dict(metadata.values) == {"a": 1, "title": "Halfway", "b": 2}


RESULTS: list[tuple[str, str, Any]] = [
    ("undefined", "(no output)", None),
    ('"text"', "text", None),
    ("[1, 2]", "[1,2]", [1, 2]),
    ("{ output: 3, unit: 'm' }", '{"output":3,"unit":"m"}', {"output": 3, "unit": "m"}),
    ("{ output: 'x', title: 't' }", "x", None),
    ("{ content: 'x', structuredContent: { a: 1 } }", "x", {"a": 1}),
    ("new Map([['a', 1n]])", '{"a":"1"}', {"a": "1"}),
    ("'\\ud800'", "\ufffd", None),
    ("({ output: 'x', title: '\\ud800', metadata: { a: '\\udfff' } })", "x", None),
    ("['\\ud800']", '["\ufffd"]', ["\ufffd"]),
    ("'é'.repeat(700000).length", "700000", 700000),
]


@pytest.mark.slow
async def test_results_of_every_shape_are_read(daemon: RunningDaemon) -> None:
    cases = ", ".join(f"() => ({value})" for value, _, _ in RESULTS)
    write(daemon, it_ts=execute(f"return [{cases}][args.n]()", '{ n: { type: "integer" } }'))
    picture = "{ output: 'p', attachments: [{ url: 'data:image/png;base64,iVBORw0KGgo=', mime: 'image/png' }, { url: 'file:///x', filename: 'x' }] }"
    write(
        daemon,
        picture_ts=execute(f"return {picture}"),
        failed_ts=execute("return { content: 'no', isError: true }"),
    )
    write(daemon, large_ts=execute("return 'é\\n'.repeat(400000)"))
    async with daemon.connect() as session:
        for number, (value, text, details) in enumerate(RESULTS):
            outcome = await session.call("it", {"n": number})
            assert (outcome.ok, outcome.text, outcome.details) == (True, text, details), value
        shown = await session.call("picture")
        assert [type(part).__name__ for part in shown.content] == ["Text", "ImageData", "ResourceLink"], shown
        failed = await session.call("failed")
        assert (failed.kind, failed.text) == ("tool_error", "no")
        large = await session.call("large")
        assert large.ok
        assert large.facts.output_bytes == 1_200_000


ENDINGS = [
    ("return { content: Array(300).fill({ type: 'text', text: 'x' }) }", "300 parts, where 256 are the most"),
    (
        "return { content: Array(200).fill({ type: 'resource_link', uri: 'x'.repeat(4000) }) }",
        "links that are too long",
    ),
    ("const a = {}; a.a = a; return a", "cannot be written as JSON"),
    ("await context.ask({ patterns: 'all' })", "a list of texts is needed"),
    ("await context.ask({ patterns: ['x'.repeat(99999)] })", "The question is too large"),
    ("await context.request('s', 5)", "the values of a request are an object"),
    ("context.progress(NaN, Infinity, {}); throw new Error('went on')", "went on"),
    ("context.metadata({ metadata: { a: 'x'.repeat(99999) } }); throw new Error('went on')", "went on"),
    ("throw new TypeError('no such unit')", "TypeError: no such unit"),
    ("process.exit(3)", "the tool called process.exit(3); a tool ends with its result: return it"),
    (
        "context.ask({ question: 'May I?' }); return 'removed'",
        "context.ask(…) was not awaited, so the tool went on",
    ),
    ("return prompt('name?')", "prompt() asks on a terminal, and the cell of this tool has none. To ask"),
    ("return confirm('sure?')", "confirm() asks on a terminal"),
    ("alert('done')", "alert() asks on a terminal"),
    ("setTimeout(() => { throw new Error('later') }, 1); await new Promise(() => {})", "later"),
    ("throw 'text'", "text"),
    ("return () => 1", "returned something of type function"),
]


async def test_a_failure_is_a_tool_error_and_the_next_call_works(daemon: RunningDaemon) -> None:
    cases = " ".join(f"if (args.n === {number}) {{ {body} }}" for number, (body, _) in enumerate(ENDINGS))
    write(daemon, it_ts=execute(f"{cases} return 'fine'", '{ n: { type: "integer" } }'))
    async with daemon.connect() as session:
        for number, (body, text) in enumerate(ENDINGS):
            outcome = await session.call("it", {"n": number})
            assert outcome.kind == "tool_error", body
            assert text in outcome.text
            assert await text_of(session, "it", n=-1) == "fine"


async def test_a_stack_in_the_log_is_one_entry_without_frames_of_ours(daemon: RunningDaemon) -> None:
    write(daemon, stacked_ts=execute("function deep() { throw new Error('why') }; deep()"))
    async with daemon.connect() as session:
        assert (await session.call("stacked")).kind == "tool_error"
    async with daemon.operate() as operator:
        request = operator_pb2.TailLogsRequest(tool_or_call="stacked")
        parts = [part async for part in operator.watch(operator.operator.TailLogs, request)]
    (entry,) = (line for part in parts for line in part.lines)
    assert "Error: why" in entry.text
    assert "deep" in entry.text
    assert SOURCES not in entry.text


@pytest.mark.slow
async def test_what_goes_on_after_a_call_ends_its_worker(daemon: RunningDaemon) -> None:
    count = "globalThis.calls = (globalThis.calls ?? 0) + 1"
    write(
        daemon,
        still_ts=execute(f"return {count}"),
        timer_ts=execute(f"setTimeout(() => {{}}, 60000); return {count}"),
        stray_ts=execute(f"Promise.reject(new Error('stray')); return {count}"),
        child_ts=execute(
            f"const {{ spawn }} = await import('node:child_process'); spawn('sleep', ['60'], {{ stdio: 'ignore', detached: true }}).unref(); return {count}"
        ),
    )
    async with daemon.connect() as session:
        assert [await text_of(session, "still") for _ in range(3)] == ["1", "2", "3"]
        for tool in ("timer", "stray", "child"):
            assert [await text_of(session, tool) for _ in range(2)] == ["1", "1"], tool
        outcome = await session.call("child")
        assert outcome.facts.leftover_processes == 1


@pytest.mark.slow
async def test_an_abort_reaches_the_signal_of_the_tool_and_kills_what_does_not_stop(
    daemon: RunningDaemon,
) -> None:
    configure(daemon, 'trust = "all"\n[daemon]\nabort_grace = "30s"\n')
    wait = "console.log('on'); return await new Promise((_, no) => context.abort.addEventListener('abort', () => no(context.abort.reason)))"
    late = "console.log('on'); return await new Promise((done) => context.abort.addEventListener('abort', () => done('half')))"
    spin = "console.log('on'); for (;;);"
    write(daemon, waits_ts=execute(wait), late_ts=execute(late), spins_ts=execute(spin))
    async with daemon.connect() as session:
        for tool, stopped, text in (
            ("waits", "settled", ""),
            ("late", "settled", "half"),
            ("spins", "killed", ""),
        ):
            if stopped == "killed":
                configure(daemon, 'trust = "all"\n[daemon]\nabort_grace = "300ms"\n')
            call = session.call(tool)
            async for event in call:
                if isinstance(event, Log):
                    call.abort("not needed")
            outcome = await call
            assert (outcome.kind, outcome.stopped) == ("aborted", stopped), outcome
            assert [getattr(part, "text", "") for part in outcome.content] == ([text] if text else [])


NATIVE = """
    if (!process.versions.bun) return "none"
    const { dlopen, ptr } = await import("bun:ffi")
    const { symbols } = dlopen("libc.so.6", {
      execve: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
      fexecve: { args: ["i32", "ptr", "ptr"], returns: "i32" },
      open: { args: ["ptr", "i32"], returns: "i32" },
      syscall: { args: ["i64", "i64", "i64", "ptr"], returns: "i64" },
    })
    const program = Buffer.from("/bin/true\\0")
    const words = new BigUint64Array([BigInt(ptr(program)), 0n])
    const at = symbols.open(ptr(program), 0)
    const tries = [symbols.execve(ptr(program), ptr(words), ptr(words)), symbols.fexecve(at, ptr(words), ptr(words))]
    // A filter with a listener, which would answer for the programs of the tool.
    const allow = new Uint16Array([6, 0, 0, 0x7fff])
    const filter = new BigUint64Array([1n, BigInt(ptr(allow))])
    const seccomp = process.arch === "arm64" ? 277 : 317
    tries.push(symbols.syscall(seccomp, 1, 8, ptr(filter)), symbols.syscall(seccomp, 1, 0, ptr(filter)))
    return tries.join() + (at > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["strict", "baseline"])
async def test_a_tool_without_programs_starts_none(daemon: RunningDaemon, sandbox: str) -> None:
    configure(
        daemon,
        f'trust = "all"\n[defaults]\nsandbox = "alone"\n[profile.alone]\nbase = "{sandbox}"\nprograms = false\n',
    )
    spawn = "const { execFileSync } = await import('node:child_process'); return execFileSync(args.program, ['-c', 'true']).toString()"
    write(
        daemon,
        it_ts=execute(spawn, '{ program: { type: "string" } }'),
        still_ts=execute("return process.execPath"),
        native_ts=execute(NATIVE),
    )
    async with daemon.connect() as session:
        assert await text_of(session, "still")
        engine = await text_of(session, "still")
        for program in ("/bin/sh", "/usr/bin/env", engine):
            outcome = await session.call("it", {"program": program})
            assert outcome.kind == "tool_error", outcome
            assert "ENOSYS" in outcome.text
        assert await text_of(session, "native") in ("none", "-1,-1,-1,0true")


async def test_a_program_gets_no_descriptor_of_the_worker(daemon: RunningDaemon) -> None:
    write(
        daemon,
        it_ts=execute("return (await import('node:child_process')).execSync('ls /proc/self/fd').toString()"),
    )
    async with daemon.connect() as session:
        assert set((await text_of(session, "it")).split()) <= {"0", "1", "2", "3"}


@pytest.mark.slow
async def test_an_invalid_frame_of_a_tool_ends_its_cell_alone(daemon: RunningDaemon) -> None:
    write(
        daemon,
        it_ts=execute(
            "(await import('node:fs')).writeSync(6, Buffer.alloc(64, 255)); await new Promise(() => {})"
        ),
    )
    write(daemon, other_ts=execute("return 'here'"))
    async with daemon.connect() as session:
        outcome = await session.call("it")
        assert (outcome.kind, outcome.cause) == ("crashed", "protocol"), outcome
        assert await text_of(session, "other") == "here"


BROKEN = [
    ("export default {\n  description: 'x',\n  execute( {\n", "", 0),
    ("\nthrow new Error('no config')", "no config", 2),
    ('import x from "left-pad/deep"\nexport default x', "bun add --ignore-scripts left-pad ", 0),
    ('import x from "./gone"\nexport default x', "gone", 0),
    ("process.exit(4)", "process.exit(4)", 0),
    ('console.error("TOKEN is required")\nprocess.exit(1)', "called process.exit(1)\nTOKEN is required", 2),
    ("export default class Counter { execute() {} }", "export default new Counter(…)", 0),
    ("export default async () => 'done'", "export default tool({ description, args, execute })", 0),
    (
        'import { b } from "./_late"\nexport const a = { description: b, execute() {} }',
        "If two files import each other, use what is imported in a function",
        1,
    ),
]


OF_CONFIGURATION = {
    **dict.fromkeys(["env", "isolation", "network", "read_only", "sandbox", "secrets"], "under [tool."),
    "programs": '[tool.programs] sandbox = "some"',
}


@pytest.mark.slow
async def test_a_file_that_cannot_be_loaded_is_a_problem_that_says_why(daemon: RunningDaemon) -> None:
    place = write(daemon, **{f"n{number}_ts": text for number, (text, _, _) in enumerate(BROKEN)})
    write(
        daemon,
        none_ts="export const a = 1",
        bad_ts="export default { description: 'x', args: 5, execute() {} }",
        _late_ts=f'import {{ a }} from "./n{len(BROKEN) - 1}"\nexport const b = a.description',
        **{
            f"{name}_ts": f"export default {{ description: 'x', args: {{}}, {name}: [], execute() {{}} }}"
            for name in OF_CONFIGURATION
        },
    )
    async with daemon.connect() as session:
        await session.described()
        problems = {
            Path(problem.path).relative_to(place).stem: problem for problem in session.catalog.problems
        }
        for number, (text, message, line) in enumerate(BROKEN):
            problem = problems[f"n{number}"]
            assert message in problem.message, text
            assert not line or problem.line == line, text
        for name, where in OF_CONFIGURATION.items():
            assert f"`{name}` is not read" in problems[name].message
            assert where in problems[name].message
        assert "has no tool" in problems["none"].message
        assert "number, not a schema" in problems["bad"].message


@pytest.mark.slow
async def test_a_file_that_is_never_loaded_is_a_problem_at_its_deadline(daemon: RunningDaemon) -> None:
    configure(daemon, 'trust = "all"\n[daemon]\nload_timeout = "2s"\n')
    write(daemon, waits_ts="await new Promise(() => {})\nexport default 1", spins_ts="for (;;);")
    async with daemon.connect() as session:
        await session.described()
        spins, waits = sorted(session.catalog.problems, key=lambda problem: problem.path)
        assert "still loading after 2 s: an `await` outside of every function" in waits.message
        assert "it does not stop" in spins.message


@pytest.mark.slow
async def test_an_edit_of_a_helper_has_an_effect_in_the_next_call(daemon: RunningDaemon) -> None:
    place = write(daemon, it_ts='import { word } from "../../lib/word"\n' + execute("return word"))
    helper = daemon.project / "lib" / "word.ts"
    helper.parent.mkdir()
    helper.write_text("export const word: string = 'one'")
    async with daemon.connect() as session:
        assert await text_of(session, "it") == "one"
        helper.write_text("export const word: string = 'three'")
        assert await text_of(session, "it") == "three"
        (place / "it.ts").write_text(execute("return 'new'"))
        await session.reload()
        await session.described()
        assert await text_of(session, "it") == "new"


def install(above: Path, name: str, source: str) -> None:
    package = above / "node_modules" / name
    package.mkdir(parents=True)
    (package / "package.json").write_text(f'{{"name": "{name}", "type": "module", "exports": "./index.ts"}}')
    (package / "index.ts").write_text(source)


TSCONFIG = """{
  // What "@/*" means, /* and */ where
  "compilerOptions": { "paths": { "@/*": ["./nowhere/*", "./src/*"], "#one": ["./src/one.ts"], }, },
}"""


async def test_imports_are_resolved_as_typescript_and_bundlers_do(daemon: RunningDaemon) -> None:
    source = daemon.project / "src"
    (source / "deep").mkdir(parents=True)
    (source / "one.ts").write_text("export const one: string = 'one'")
    (source / "deep" / "index.ts").write_text("export const deep = 'deep'")
    (source / "data.json").write_text('{"data": "data"}')
    (daemon.project / "tsconfig.json").write_text(TSCONFIG)
    imports = """
        import { one } from "@/one"
        import { one as same } from "#one"
        import { one as js } from "../../src/one.js"
        import { deep } from "../../src/deep"
        import data from "@/data.json" with { type: "json" }
        import { readFileSync } from "node:fs"
    """
    write(
        daemon, it_ts=imports + execute("return [one, same, js, deep, data.data, typeof readFileSync].join()")
    )
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        assert await text_of(session, "it") == "one,one,one,deep,data,function"


OMP = """
import type { CustomToolFactory } from "@oh-my-pi/pi-coding-agent"
import { StringEnum } from "@oh-my-pi/pi-ai"
import { Text } from "@oh-my-pi/pi-tui"

const factory: CustomToolFactory = (pi) => ({
  name: "greet",
  label: "Greet",
  description: "Greet",
  parameters: pi.typebox.Type.Object({ name: pi.typebox.Type.String(), how: StringEnum(["hello", "bye"]) }),
  async execute(toolCallId, params, onUpdate, ctx, signal) {
    onUpdate?.({ content: [{ type: "text", text: "half" }], details: { part: 1 } })
    const { stdout, code } = await pi.exec("echo", [params.how])
    const facts = [stdout.trim(), code, params.name, ctx.cwd === pi.cwd, ctx.hasUI, await ctx.ui.confirm("?"), signal.aborted, typeof toolCallId]
    return { content: [{ type: "text", text: facts.join("|") }], details: { done: true } }
  },
  renderResult: () => new Text("x"),
})
export default factory
"""
PI = """
export default function (pi) {
  pi.on("session_start", () => {})
  pi.registerTool({ name: "order", description: "Order", parameters: {}, async execute(id, params, signal, onUpdate, ctx) { return `${signal.aborted} ${typeof onUpdate} ${typeof ctx.cwd}` } })
  pi.registerTool({ name: "short", description: "Two", parameters: {}, async execute(id, params) { return typeof id + typeof params } })
  pi.registerTool({ name: "screen", description: "Screen", parameters: {}, async execute() { pi.showOverlay() } })
}
"""


@pytest.mark.slow
async def test_factories_of_oh_my_pi_and_pi_make_tools_with_five_arguments(daemon: RunningDaemon) -> None:
    write(
        daemon,
        omp_ts=OMP,
        pi_ts=PI,
        bad_ts="export default (host) => 5",
        wrong_ts="export default (host) => [1]",
    )
    write(
        daemon, many_ts="export const tools = { first: { description: '1', execute: () => 'one' }, other: 5 }"
    )
    async with daemon.connect() as session:
        await session.described()
        assert sorted(session.catalog.tools) == ["first", "greet", "order", "screen", "short"]
        assert session.catalog.tools["greet"].input_schema["properties"]["how"]["enum"] == ["hello", "bye"]
        problems = sorted(problem.message for problem in session.catalog.problems)
        assert "default() made something without execute()" in problems[0]
        assert "default() returned number" in problems[1]
        call = session.call("greet", {"name": "me", "how": "bye"})
        updates = [event async for event in call if isinstance(event, Update)]
        outcome = await call
        assert outcome.text == "bye|0|me|true|false|false|false|string", outcome
        assert outcome.details == {"done": True}
        assert [update.details for update in updates] == [{"part": 1}]
        assert await text_of(session, "order") == "false function string"
        assert await text_of(session, "short") == "stringobject"
        assert await text_of(session, "first") == "one"
        screen = await session.call("screen")
        assert "the host has no showOverlay() here" in screen.text


@pytest.mark.slow
async def test_packages_that_are_installed_are_used_before_ours(daemon: RunningDaemon) -> None:
    configure(daemon, 'trust = "confined"\n')
    install(daemon.project, "zod", "export const own: string = 'the project has it'")
    write(daemon, it_ts='import { own } from "zod"\n' + execute("return own"))
    user = daemon.directory / ".config" / "opencode"
    install(user, "words", "export const word: string = 'the user has it'")
    (user / "tools").mkdir()
    (user / "tools" / "mine.ts").write_text('import { word } from "words"\n' + execute("return word"))
    async with daemon.connect() as session:
        assert await text_of(session, "it") == "the project has it"
        assert await text_of(session, "mine") == "the user has it"


COPY = """
import { z } from "zod"
import { tool } from "@opencode-ai/plugin"
const size = z.string().describe("how large").transform((it) => it.length)
export default {
  description: "It",
  args: z.object({ size, unit: z.enum(["m", "s"]).default("m").describe("which"), own: z.boolean().default(z !== tool.schema) }),
  execute: async (args) => JSON.stringify(args),
}
export const mixed = tool({ description: "Both", args: { size, other: tool.schema.number().describe("ours") }, execute: async (args) => JSON.stringify(args) })
"""


async def test_a_copy_of_zod_in_the_project_keeps_descriptions_defaults_and_transforms(
    daemon: RunningDaemon,
) -> None:
    package = daemon.project / "node_modules" / "zod"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "zod", "type": "module", "exports": "./index.js"}')
    shutil.copy(Path(SOURCES, "vendor", "zod.mjs"), package / "index.js")
    write(daemon, it_ts=COPY)
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        schema = session.catalog.tools["it"].input_schema
        assert schema["properties"]["size"] == {"type": "string", "description": "how large"}
        assert schema["properties"]["unit"]["description"] == "which"
        assert json.loads(await text_of(session, "it", size="abc")) == {"size": 3, "unit": "m", "own": True}
        both = session.catalog.tools["it_mixed"].input_schema["properties"]
        assert (both["size"]["description"], both["other"]["description"]) == ("how large", "ours")
        assert json.loads(await text_of(session, "it_mixed", size="ab", other=1)) == {"size": 2, "other": 1}


async def test_a_project_makes_nothing_readable_by_a_link(daemon: RunningDaemon) -> None:
    configure(daemon, 'trust = "confined"\n[defaults]\nsandbox = "baseline"\n')
    install(daemon.directory, "secret", "export const word: string = 'of the user'")
    write(daemon, it_ts='import { word } from "secret"\n' + execute("return word"))
    (daemon.project / "node_modules").symlink_to(daemon.directory / "node_modules")
    async with daemon.connect() as session:
        await session.described()
        (problem,) = session.catalog.problems
        assert "secret" in problem.message


@pytest.mark.slow
async def test_a_question_and_its_answer(daemon: RunningDaemon) -> None:
    body = "await context.ask({ permission: 'edit', patterns: ['a.txt'], always: ['*'], metadata: { a: 1 } }); return 'edited'"
    write(daemon, it_ts=execute(body))
    asked: list[Any] = []

    async def answer(question: Any) -> bool:
        asked.append(question)
        return len(asked) == 1

    async with daemon.connect(ask=answer) as session:
        assert await text_of(session, "it") == "edited"
        denied: Outcome = await session.call("it")
        assert denied.kind == "denied", denied
        assert (asked[0].permission, tuple(asked[0].patterns)) == ("edit", ("a.txt",))


HEARS = """
import { appendFileSync } from "node:fs"
export function onSession(event, context) {
  appendFileSync("heard", JSON.stringify([event.reason, event.from ?? null, context.sessionID, process.pid]) + "\\n")
}
export default (host) => ({
  name: "hears", description: "Hears.", parameters: host.typebox.Type.Object({}),
  execute: async () => ({ content: [{ type: "text", text: String(process.pid) }] }),
  onSession(event) {
    if (event.reason === "switch") throw new Error("cannot switch")
  },
})
"""


@pytest.mark.slow
async def test_a_session_is_told_from_start_to_shutdown(daemon: RunningDaemon) -> None:
    configure(daemon, '[tool.hears]\nisolation = "session"\n')
    write(daemon, hears_ts=HEARS)

    def heard() -> list[list[Any]]:
        file = daemon.project / "heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def until(count: int) -> None:
        async with asyncio.timeout(40):
            while len(heard()) < count:
                await asyncio.sleep(0.02)

    async with daemon.connect() as session:
        own = session.id
        await until(1)
        session.tell("branch", {"from": "a"}, session_id="ses_1")
        session.tell("switch")
        await until(3)
        process = int((await session.call("hears")).text)
    await until(4)
    assert [each[:3] for each in heard()] == [
        ["start", None, own], ["branch", "a", "ses_1"], ["switch", None, own], ["shutdown", None, own],
    ]  # fmt: skip
    assert {each[3] for each in heard()} == {process}
    assert "on_session(switch) failed: Error: cannot switch" in daemon.log.read_text()


PROPOSES = """
import { writeFileSync } from "node:fs"
export default (pi) => ({
  name: "propose", description: "Proposes.",
  parameters: pi.typebox.Type.Object({ name: pi.typebox.Type.String() }),
  async execute(id, { name }) {
    pi.pushPendingAction({
      label: `Write ${name}`,
      details: { name },
      apply: async (reason) => {
        if (name === "bad") throw new Error("cannot write that")
        writeFileSync(name, reason)
      },
    })
    return { content: [{ type: "text", text: `Would write ${name}.` }] }
  },
})
"""


@pytest.mark.slow
async def test_an_action_is_done_only_when_it_is_applied(daemon: RunningDaemon) -> None:
    write(daemon, notes_ts=PROPOSES)
    async with daemon.connect() as session, daemon.connect() as other:
        assert set(session.catalog.tools) == {"propose", "notes_resolve"}
        assert "No action is pending" in (await session.call("notes_resolve", {"action": "apply"})).text
        for name in ("one", "two"):
            assert (await session.call("propose", {"name": name})).text == f"Would write {name}."
        assert (await other.call("notes_resolve", {"action": "apply"})).kind == "tool_error"
        applied = await session.call("notes_resolve", {"action": "apply", "reason": "fine"})
        assert (applied.text, applied.details) == ("Applied: Write two. 1 more are pending.", {"name": "two"})
        assert (daemon.project / "two").read_text() == "fine"
        assert (await session.call("notes_resolve", {"action": "discard"})).text == "Discarded: Write one."
        assert not (daemon.project / "one").exists()
        await session.call("propose", {"name": "bad"})
        assert "cannot write that" in (await session.call("notes_resolve", {"action": "apply"})).text
        assert (await session.call("notes_resolve", {"action": "discard"})).ok
        assert (await session.call("notes_resolve", {"action": "both"})).kind == "invalid_arguments"


ASKS = """
export default (pi) => ({
  name: "asks", description: "Asks.", parameters: pi.typebox.Type.Object({}),
  async execute(id, values, onUpdate, context) {
    const there = [pi.hasUI, context.hasUI]
    const said = [
      await context.ui.select("Which?", ["a", "b"]), await pi.ui.confirm("Sure?", "Really?"),
      await context.ui.input("Name?", "me"),
    ]
    context.ui.notify("done")
    return { content: [{ type: "text", text: JSON.stringify([there, said]) }] }
  },
})
"""


@pytest.mark.slow
async def test_a_tool_asks_where_somebody_answers(daemon: RunningDaemon) -> None:
    asked: list[str] = []

    async def answer(question: Question) -> object:
        asked.append(question.message)
        return {"select": "b", "confirm": True, "input": "you"}[question.kind]

    write(daemon, asks_ts=ASKS)
    async with (
        daemon.connect(services={"ui.question": question_service(answer)}) as session,
        daemon.connect() as alone,
    ):
        assert await text_of(session, "asks") == '[[true,true],["b",true,"you"]]'
        assert asked == ["Which?", "Sure?\nReally?", "Name?"]
        assert await text_of(alone, "asks") == "[[false,false],[null,false,null]]"


TOOLCELL = """
import { tool, ToolError } from "toolcell"

export default tool({
  description: "Halve",
  args: { n: { type: "integer" }, how: { enum: ["down", "up"], default: "down" } },
  execute({ n, how }) {
    if (n === 0) throw new ToolError("nothing to halve", { details: { n } })
    if (n === 1) throw new ToolError("a circle", { details: ((it) => (it.it = it))({}) })
    return how === "up" ? Math.ceil(n / 2) : Math.floor(n / 2)
  },
})
"""


@pytest.mark.slow
async def test_the_package_of_our_own_need_not_be_installed_and_its_error_is_told_as_it_is(
    daemon: RunningDaemon,
) -> None:
    write(daemon, halve_ts=TOOLCELL)
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        schema = session.catalog.tools["halve"].input_schema
        assert (schema["required"], schema["properties"]["how"]["default"]) == (["n"], "down")
        assert await text_of(session, "halve", n=7) == "3"
        assert await text_of(session, "halve", n=7, how="up") == "4"
        call = session.call("halve", {"n": 0})
        logged = [event async for event in call if isinstance(event, Log)]
        outcome = await call
        assert (outcome.kind.value, outcome.text, outcome.details) == (
            "tool_error",
            "nothing to halve",
            {"n": 0},
        )
        assert logged == [], "it is no fault of the tool that a stack would show"
        outcome = await session.call("halve", {"n": 1})
        assert (outcome.kind.value, outcome.text, outcome.details) == ("tool_error", "a circle", None)
