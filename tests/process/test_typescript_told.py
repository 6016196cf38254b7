"""What an author and a model are told of a tool in TypeScript that fails: the same as in Python, on both engines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES, NODE

import toolcelld
from toolcell.client import Problem

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("engine")]

SHIM = Path(toolcelld.__file__).parent / "worker/javascript/shims/toolcell.mjs"


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def of_engine(engine: str) -> Iterator[RunningDaemon]:
    """A daemon that has one engine."""
    path = f"{ENGINES[engine].parent}:/usr/bin:/bin"
    with running_daemon(environment={"PATH": path}) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_engine):
        yield of_engine


def save(daemon: RunningDaemon, name: str, text: str) -> Path:
    path = daemon.project / ".opencode/tool" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


async def problems_of(daemon: RunningDaemon) -> dict[str, Problem]:
    """The problems of the files, by their names without endings; "" is for none."""
    async with daemon.connect() as session:
        await session.described()
        return {Path(problem.path).name.partition(".")[0]: problem for problem in session.catalog.problems}


def tools(bodies: list[str]) -> str:
    """A file with a tool for each body of a function."""
    return "\n".join(
        f'export const v{number} = {{ description: "Fail.", args: {{}}, async execute() {{ {body} }} }}'
        for number, body in enumerate(bodies)
    )


RAISED = {
    'throw new Error("outer", { cause: new TypeError("inner", { cause: new Error("deep") }) })': (
        "outer\ncaused by TypeError: inner\ncaused by deep"
    ),
    'throw new Error("failed: no key", { cause: new Error("no key") })': "failed: no key",
    'throw new Error("", { cause: "text" })': "Error\ncaused by text",
    'throw new TypeError("x", { cause: new AggregateError([new Error("first"), new Error("second")]) })': (
        "TypeError: x\ncaused by first\ncaused by second"
    ),
    'throw new AggregateError([new Error("one"), new TypeError("two")], "both")': "one\nTypeError: two",
    'const low = new Error("low"); throw new AggregateError([new Error("one", { cause: low }), new Error("two", { cause: low })], "both", { cause: new Error("why") })': (
        "one\ncaused by low\ntwo\ncaused by why"
    ),
    "process.exit({ a: 1 })": "the tool called process.exit({ a: 1 }); a tool ends with its result: return it",
    "process.exit(Symbol('a'))": "the tool called process.exit(Symbol(a)); a tool ends with its result: return it",
    'return Promise.any([Promise.reject(new Error("p1")), Promise.reject("p2")])': "p1\np2",
    "throw new AggregateError(Array.from({ length: 9 }, (_, i) => new Error(`e${i}`)))": (
        "e0\ne1\ne2\ne3\ne4\nand more"
    ),
    'throw new AggregateError([new AggregateError([new Error("in")]), new Error("out")])': "in\nout",
    'throw new RangeError("first\\n\\n  second\\nthird")': "RangeError: first\n  second\nthird",
    'throw new Error(Array.from({ length: 40 }, (_, i) => `line ${i}`).join("\\n"))': "\n".join(
        [*(f"line {number}" for number in range(20)), "…"]
    ),
    'throw new Error("x".repeat(9000))': "x" * 511 + "…",
    "throw new Error(Array.from({ length: 9 }, () => 'y'.repeat(400)).join('\\n'))": (
        "\n".join(["y" * 400] * 9)[:1999] + "…"
    ),
    "throw { code: 3, why: 'no' }": "{ code: 3, why: 'no' }",
    "throw undefined": "undefined",
    "throw Symbol('s')": "Symbol(s)",
}


@pytest.mark.slow
async def test_causes_members_and_lines_are_told_within_a_bound(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools([*RAISED]))
    async with daemon.connect() as session:
        for number, (body, text) in enumerate(RAISED.items()):
            outcome = await session.call(f"some_v{number}")
            assert (body, outcome.kind, outcome.text) == (body, "tool_error", text)


def test_the_schemas_of_another_package_are_pointed_to_it() -> None:
    asks = f"import {{ tool }} from {json.dumps(str(SHIM))}; try {{ tool.schema.string() }} catch (error) {{ console.log(error.message) }}"
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", asks], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith('tool.schema is of "@opencode-ai/plugin": import { tool } from there')


HOSTILE = [
    'const error = new Error("loop"); error.cause = error; throw error',
    'class E extends Error { get cause() { return new E("again") } } throw new E("loop")',
    'throw Object.defineProperty(new Error("x"), "cause", { get() { throw new Error("no") } })',
    'throw Object.defineProperty(new Error("x"), "message", { get() { throw new Error("no") } })',
    'throw Object.defineProperty(new Error("x"), "stack", { get() { throw new Error("no") } })',
    'throw Object.defineProperty(new Error("x"), "message", { value: { toString() { throw new Error("no") } } })',
    'throw Object.assign(new Error("x"), { code: { toString() { throw new Error("no") } }, stderr: { slice: 1 } })',
    "throw Object.assign(new AggregateError([]), { errors: { length: 1e9 } })",
    "const all = new AggregateError([]); all.errors = [all, all, all]; throw all",
    "throw new Proxy(new Error('x'), { get() { throw 1 }, getPrototypeOf() { throw 2 }, ownKeys() { throw 3 } })",
    "throw new Proxy({}, { get: (target, name, self) => self, getPrototypeOf: () => null })",
    "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
    "throw Object.create(null)",
    "throw () => 1",
]


@pytest.mark.slow
async def test_what_cannot_be_read_of_an_exception_ends_the_call_at_once(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools(HOSTILE))
    save(daemon, "fine.ts", tools(['return "fine"']))
    at_import = HOSTILE[::3]
    for number, body in enumerate(at_import):
        save(daemon, f"import{number}.ts", f"{{ {body} }}\nexport {{}}")
    async with daemon.connect() as session:
        await session.described()
        broken = [problem for problem in session.catalog.problems if problem.reason == "broken"]
        assert len(broken) == len(at_import)
        assert "fine_v0" in session.catalog.tools
        for number, body in enumerate(HOSTILE):
            outcome = await session.call(f"some_v{number}", timeout=20)
            assert (body, outcome.kind, outcome.cause) == (body, "tool_error", None), outcome
            assert outcome.text
            assert len(outcome.text) <= 2000


THROWS = 'throw new Error("helper throws")\n'
BROKEN_HELPER = "\nexport const x = = 3\n"
# By the file: its text, the line, and the lines of the message from the second on.
MISPLACED = {
    "token.ts": ("// 1\nconst a: number = 1\nexport default { a: 1 +* 2 }\n", 3, "export default { a: 1 +* 2 }", "*"),
    "plain.js": ("// 1\nexport default { a: 1 +* 2 }", 2, "export default { a: 1 +* 2 }", "*"),
    "common.cjs": ("// 1\nmodule.exports = { a() { let 3 = 4 } }", 2, "module.exports = { a() { let 3 = 4 } }", "3"),
    "twice.ts": ("const a: number = 1\n  const a: number = 2; export {}", 2, "const a: number = 2; export {}", "a:"),
    "end.ts": ("export default {\n  execute( {\n\n", 2, "execute( {", ""),
    "text.mjs": ('// 1\nconst x = 1\nexport const y = x + "\n', 3, 'export const y = x + "', None),
    "deep.ts": ('// 1\nimport { x } from "./_broken"\nexport default x', 2, "export const x = = 3", "= 3"),
    "gone.ts": ('// 1\nimport fs from "node:fs"\nimport { x } from "./nowhere"\nexport default x', 3, 'import { x } from "./nowhere"', "./nowhere"),
    "required.cjs": ('// 1\nmodule.exports = require("./nowhere")', 2, 'module.exports = require("./nowhere")', "./nowhere"),
    "later.ts": ('// 1\n  const x = await import("./nowhere")\nexport default x', 2, 'const x = await import("./nowhere")', "./nowhere"),
    "package.ts": ('import {\n  x\n} from "left-pad"\nexport default x', 3, '} from "left-pad"', "left-pad"),
    "below.ts": ('// 1\nimport x from "./_gone"\nexport default x', 2, 'import y from "./none"', "./none"),
}  # fmt: skip


@pytest.mark.slow
async def test_a_mistake_is_shown_with_its_line_and_carets_below_it(daemon: RunningDaemon) -> None:
    save(daemon, "_broken.ts", BROKEN_HELPER)
    save(daemon, "_gone.ts", 'import y from "./none"\nexport default y')
    for name, (text, *_) in MISPLACED.items():
        save(daemon, name, text)
    problems = await problems_of(daemon)
    for name, (_, line, shown, marked) in MISPLACED.items():
        problem = problems.pop(name.partition(".")[0])
        first, text, carets, *_ = problem.message.split("\n")
        assert (name, problem.line, text) == (name, line, f"  {shown}"), problem.message
        column = len(carets) - len(carets.lstrip())
        assert set(carets.strip()) == {"^"}
        if marked is not None:
            assert text[column:].startswith(marked), problem.message
        assert not first.startswith("SyntaxError"), first
    assert not problems


@pytest.mark.slow
async def test_a_mistake_in_another_file_is_named_with_that_file_and_line(daemon: RunningDaemon) -> None:
    helper = save(daemon, "_broken.ts", BROKEN_HELPER)
    save(daemon, "deep.ts", MISPLACED["deep.ts"][0])
    thrower = save(daemon, "_throws.ts", f"// 1\n\n{THROWS}export const y = 1")
    save(daemon, "_between.ts", 'export { y } from "./_throws"')
    save(daemon, "caught.ts", '// 1\n\nimport { y } from "./_between"\nexport default y')
    problems = await problems_of(daemon)
    assert f" in {helper} line 2" in problems["deep"].message.partition("\n")[0]
    assert problems["caught"].message.partition("\n")[0] == f"helper throws in {thrower} line 3"
    assert problems["caught"].line == 3


async def test_an_exception_at_import_has_its_line(daemon: RunningDaemon) -> None:
    texts = {
        "one": '// 1\ninterface A { a: number }\nfunction f(a: A) {\n  throw new TypeError("bad")\n}\nf({ a: 1 })',
        "two": '// 1\n\nJSON.parse("{")',
        "three": "// 1\n\n\nnull!.foo",
        "a space": "// 1\nprocess.exit(3)",
    }
    for name, text in texts.items():
        save(daemon, f"{name}.ts", f"{text}\nexport {{}}")
    problems = await problems_of(daemon)
    assert {name: problem.line for name, problem in problems.items()} == {
        "one": 4,
        "two": 3,
        "three": 4,
        "a space": 2,
    }
    assert problems["one"].message == "TypeError: bad"


LOGGED = """function logged(target: any, key: string, d: PropertyDescriptor) {
  const f = d.value
  d.value = function (...a: any[]) { return "logged " + f.apply(this, a) }
  return d
}
export class Greeter { constructor(private readonly name: string) {}
  @logged hi() { return this.name } }
"""
STANDARD = """function logged(f: any, context: any) { return function (this: any) { return `${context.name} ${f.call(this)}` } }
class Greeter { accessor name = "x"
  @logged hi() { return this.name } }
"""
GREET = 'export default { description: "Greet.", args: {}, async execute() { return new Greeter("x").hi() } }'
LEGACY = '{ /* of the project */ "compilerOptions": { "experimentalDecorators": true, "paths": { "@/*": ["./lib/*"] } } }'


@pytest.mark.slow
async def test_decorators_work_or_are_named_with_their_line_and_what_to_do(
    daemon: RunningDaemon, engine: str
) -> None:
    save(daemon, "standard.ts", STANDARD + GREET)
    save(
        daemon,
        "plain.mjs",
        f'const tag = (value) => value\n@tag class Greeter {{ hi() {{ return "plain" }} }}\n{GREET}',
    )
    if engine == "bun":
        async with daemon.connect() as session:
            assert (await session.call("standard")).text == "hi x"
            assert (await session.call("plain")).text == "plain"
        return
    problems = await problems_of(daemon)
    for name, line, what in (("standard", 2, "`accessor`"), ("plain", 2, "a decorator")):
        assert problems[name].line == line
        assert f"has {what}, which Node does not run; install bun" in problems[name].message


@pytest.mark.slow
async def test_decorators_of_an_option_of_the_project_work_or_are_named(
    daemon: RunningDaemon, engine: str
) -> None:
    (daemon.project / "tsconfig.json").write_text(LEGACY)
    (daemon.project / "bunfig.toml").write_text('preload = ["./preloaded.ts"]')
    (daemon.project / "preloaded.ts").write_text("globalThis.preloaded = true")
    (daemon.project / ".env").write_text("PRELOADED=true")
    (daemon.project / "lib").mkdir()
    (daemon.project / "lib/greeter.ts").write_text(LOGGED)
    save(daemon, "own.ts", LOGGED + GREET)
    save(daemon, "helper.ts", f'import {{ Greeter }} from "@/greeter"\n{GREET}')
    save(
        daemon,
        "raises.ts",
        f"// 1\n{LOGGED.replace('const f', 'throw new Error(`at line 3`); const f')}{GREET}",
    )
    save(daemon, "clean.ts", tools(["return [globalThis.preloaded, process.env.PRELOADED].join()"]))
    problems = await problems_of(daemon)
    async with daemon.connect() as session:
        assert (await session.call("clean_v0")).text == ","
        if engine == "bun":
            assert (await session.call("own")).text == "logged x"
            assert (await session.call("helper")).text == "logged x"
            assert (problems["raises"].line, problems["raises"].message) == (3, "at line 3")
            return
    for name, line in (("own", 7), ("helper", 1), ("raises", 8)):
        assert problems[name].line == line
        assert "has a decorator, which Node does not run; install bun" in problems[name].message


UNFILLABLE = {
    "{ f: z.function() }": ("f", "function", "a string that names"),
    "{ a: z.string(), f: z.map(z.string(), z.string()) }": ("f", "map", "an object (z.record)"),
    "z.object({ f: z.set(z.string()) })": ("f", "set", "an array"),
    "{ f: z.array(z.object({ d: z.date().optional() })) }": ("f[].d", "date", "z.coerce.date()"),
    "{ f: z.record(z.string(), z.bigint()) }": ("f[]", "bigint", "a string of digits"),
    "{ f: z.tuple([z.string(), z.symbol()]) }": ("f[1]", "symbol", "an enum"),
    "{ f: z.undefined() }": ("f", "undefined", "leave it out"),
    "{ f: z.void().nullable() }": ("f", "void", "leave it out"),
    "{ f: z.never() }": ("f", "never", "leave it out"),
    "{ f: z.nan() }": ("f", "nan", "a number"),
    "{ f: z.file() }": ("f", "file", "the path of the file"),
    "{ f: z.instanceof(URL) }": ("f", "URL", "an object with its fields"),
    "{ f: z.union([z.date(), z.map(z.string(), z.string())]) }": ("f", "date", "z.iso.datetime()"),
    "{ f: z.literal(1n) }": ("f", "bigint", "an integer"),
    "{ f: z.date().default(() => new Date()) }": ("f", "date", "z.iso.datetime()"),
    "{ f: z3.array(z3.map(z3.string(), z3.string())) }": ("f[]", "map", "an object"),
    "z3.object({ f: z3.date().optional() })": ("f", "date", "z.coerce.date()"),
    "z3.object({ f: z3.function() }).strict()": ("f", "function", "a string that names"),
    "T.Object({ f: T.Optional(T.Date()) })": ("f", "Date", "a string that is a date"),
    "T.Object({ f: T.Array(T.Function([], T.String())) })": ("f[]", "Function", "a string that names"),
    "T.Object({ f: T.Never() })": ("f", "never", "leave it out"),
    "T.Object({ f: T.Union([T.Undefined(), T.BigInt()]) })": ("f", "undefined", "leave it out"),
    '{ f: { type: "float" } }': ("f", "float", "one of string, number"),
}
NO_SCHEMA = {
    "{ f: 'string' }": '"string", and no schema; write { type: "string" }',
    "{ f: Number }": 'a function, and no schema; write { type: "number" }',
    "{ a: z.string(), f: 'the text' }": '"the text", and no schema; write { type: "string" }',
    "{ f: null }": 'null, and no schema; write { type: "string" }',
}
FILLED = {
    "{ f: z.coerce.date() }": ('"2026-01-02T00:00:00Z"', '"2026-01-02T00:00:00.000Z"'),
    "{ f: z.coerce.bigint() }": ('"12"', '"12"'),
    "{ f: z.preprocess((text) => new Date(text), z.date()) }": ('"2026-01-02"', '"2026-01-02T00:00:00.000Z"'),
    "{ f: z.union([z.date(), z.string()]) }": ('"x"', '"x"'),
    "{ f: z.promise(z.string()) }": ('"x"', '"x"'),
    "{ f: z.string().transform((text) => BigInt(text)) }": ('"3"', '"3"'),
    "{ f: z.any() }": ("[1]", "[1]"),
    "{ f: z.string(), g: z.never().optional(), h: z.undefined().optional() }": ('"x"', '"x"'),
    "z3.object({ f: z3.coerce.date() })": ('"2026-01-02T00:00:00Z"', '"2026-01-02T00:00:00.000Z"'),
    "{ f: z3.preprocess((text) => new Map([[text, 1]]), z3.map(z3.string(), z3.number())) }": ('"a"', '{"a":1}'),
    "T.Object({ f: T.String(), g: T.Optional(T.Never()) })": ('"x"', '"x"'),
    '{ type: { type: "string" }, f: { type: "string", default: "x" } }': ('"y", "type": "t"', '"y"'),
}  # fmt: skip


def taking(declared: dict[str, object]) -> str:
    """A file with a tool for each schema of arguments; it returns its argument `f` as JSON."""
    imports = 'import { z } from "zod"\nimport { z as z3 } from "zod/v3"\nimport { Type as T } from "@sinclair/typebox"\n'
    body = "async execute({ f }) { return JSON.stringify(f instanceof Map ? Object.fromEntries(f) : typeof f === 'bigint' ? String(f) : await f) }"
    return imports + "\n".join(
        f'export const v{number} = {{ description: "Take.", args: {schema}, {body} }}'
        for number, schema in enumerate(declared)
    )


async def test_a_parameter_that_json_cannot_fill_rejects_its_tool_with_what_to_take(
    daemon: RunningDaemon,
) -> None:
    save(daemon, "some.ts", taking({**UNFILLABLE, "{ f: z.string() }": None, **NO_SCHEMA}))
    async with daemon.connect() as session:
        await session.described()
        assert set(session.catalog.tools) == {f"some_v{len(UNFILLABLE)}"}
        said = {problem.tool: problem.message for problem in session.catalog.problems}
    for number, (schema, (name, kind, instead)) in enumerate(UNFILLABLE.items()):
        message = said[f"some_v{number}"]
        start = f"parameter '{name}' has a type that JSON cannot fill: {kind}; "
        assert (schema, message[: len(start)]) == (schema, start)
        assert instead in message
    for number, (schema, told) in enumerate(NO_SCHEMA.items(), len(UNFILLABLE) + 1):
        assert (schema, said[f"some_v{number}"]) == (schema, f"its argument f is {told}")


@pytest.mark.slow
async def test_a_type_that_reads_what_json_has_is_filled(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", taking({**FILLED}))
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        for number, (schema, (given, read)) in enumerate(FILLED.items()):
            outcome = await session.call(f"some_v{number}", json.loads(f'{{"f": {given}}}'))
            assert (schema, outcome.text) == (schema, read)


GOOD = '{ description: "Good.", args: {}, async execute() { return "good" } }'
BAD = {
    "listed": (
        f"export const tools = [{{ ...{GOOD}, name: 'first' }}, 5, {{ description: 'x', args: {{}} }}, {{ ...{GOOD}, name: 'last' }}]",
        {"first", "last"},
        [("", "tools has an invalid tool at index 1"), ("", "tools has an invalid tool at index 2")],
    ),
    "mapped": (
        f"export default {{ fine: {GOOD}, half: {{ description: 'x', args: {{}} }}, LIMIT: 3, words: {{ a: 1 }} }}",
        {"fine"},
        [("half", "default has an invalid tool at index 1")],
    ),
    "named": (
        f"export const good = {GOOD}\nexport const wrong = {{ ...good, args: 5 }}\nexport const half = {{ description: 'x', args: {{}} }}\nexport const proxy = new Proxy({{}}, {{ get() {{ throw 1 }}, has() {{ throw 2 }} }})",
        {"named_good"},
        [("half", "no function execute()"), ("named_wrong", "its arguments are a number")],
    ),
    "made": (
        f"export default (pi) => [{{ ...{GOOD}, name: 'maker' }}, {{ description: 'x' }}]",
        {"maker"},
        [("", "default() made something without execute()")],
    ),
    "thrown": (
        f"export const good = {GOOD}\nexport default (pi) => {{ throw new RangeError('no host') }}",
        {"thrown_good"},
        [("", "RangeError: no host")],
    ),
    "getter": (
        f"export const good = {GOOD}\nexport const odd = {{ description: 'x', execute() {{}}, get args() {{ throw new RangeError('no args') }} }}",
        {"getter_good"},
        [("getter_odd", "RangeError: no args")],
    ),
}  # fmt: skip


@pytest.mark.slow
async def test_a_bad_tool_takes_no_good_one_along(daemon: RunningDaemon) -> None:
    for name, (text, *_) in BAD.items():
        save(daemon, f"{name}.ts", text)
    async with daemon.connect() as session:
        await session.described()
        names = set[str]().union(*(names for _, names, _ in BAD.values()))
        assert set(session.catalog.tools) == names
        for name in sorted(names):
            assert (await session.call(name)).text == "good"
        for name, (_, _, told) in BAD.items():
            problems = [problem for problem in session.catalog.problems if Path(problem.path).stem == name]
            found = sorted((problem.tool, problem.message) for problem in problems)
            assert len(found) == len(told), found
            for (tool, message), (expected, part) in zip(found, told, strict=True):
                assert (tool, part in message) == (expected, True), message


OPTIONS = {
    "timout: 5": "there is no option 'timout'; did you mean 'timeout'?",
    "timeout: 5": "`timeout` is not read from a file in TypeScript; take it out, and put it under [tool.some_v1] in",
    "memory: '1GiB'": "`memory` is not read from a file",
    "descripton: 'x'": "there is no option 'descripton'; did you mean 'description'?",
    "readOnly: true": "there is no option 'readOnly'; did you mean 'read_only'?",
    "onsession: 1": "there is no option 'onsession'; did you mean 'onSession'?",
    "colour: 'red'": "there is no option 'colour'; it has no effect",
}


@pytest.mark.slow
async def test_an_option_that_is_not_there_is_remarked_upon(daemon: RunningDaemon) -> None:
    body = 'description: "It.", args: {}, async execute() { return "ran" }'
    save(
        daemon,
        "some.ts",
        "\n".join(
            f"export const v{number} = {{ {option}, {body} }}" for number, option in enumerate(OPTIONS)
        ),
    )
    known = "label: 'It', promptGuidelines: [], renderCall() {}, helper() {}, onSession() {}, none: undefined"
    save(daemon, "known.ts", f"export default {{ {known}, {body} }}")
    save(
        daemon,
        "own.ts",
        "class Own { colour = 1; description = 'Own.'; args = {}; execute() { return this.colour } }\nexport default new Own()",
    )
    async with daemon.connect() as session:
        await session.described()
        said = {problem.tool: problem for problem in session.catalog.problems}
        assert set(said) == {f"some_v{number}" for number in range(len(OPTIONS))}
        for number, start in enumerate(OPTIONS.values()):
            problem = said[f"some_v{number}"]
            assert problem.reason == "remark"
            assert problem.message.startswith(start), problem.message
            assert (await session.call(problem.tool)).text == "ran"
        assert (await session.call("own")).text == "1"


IMPORTED = 'import { type Plugin, tool } from "@opencode-ai/plugin"\n'
SHOUT = 'shout: tool({ description: "Shout.", args: { text: tool.schema.string() }, async execute(args) { return args.text.toUpperCase() } })'
PLUGINS = {
    "typed": f"{IMPORTED}export const Shout: Plugin = async ({{ client, $, directory }}) => ({{ tool: {{ {SHOUT} }} }})",
    "default": f"{IMPORTED}const plugin = (async (input) => {{ await input.client.app.log({{}}); return {{ tool: {{ {SHOUT.replace('shout', 'loud', 1)} }} }} }}) satisfies Plugin\nexport default plugin\nexport {{ plugin }}",
    "server": f"{IMPORTED}export default {{ id: 'x', server: async () => ({{ tool: {{ {SHOUT.replace('shout', 'served', 1)}, bad: {{}} }} }}) }} as {{ server: Plugin }}",
    "hooks": f'{IMPORTED}export const Hooks: Plugin = async () => ({{ "chat.message": async () => {{}} }})',
    "asks": f"{IMPORTED}export const Asks: Plugin = async ({{ client }}) => ({{ tool: await client.session.list() }})",
    "beside": f"{IMPORTED}type Own = Plugin\nexport default {GOOD}\nexport const helper = () => {{ throw new Error('called') }}",
}  # fmt: skip


@pytest.mark.slow
async def test_a_plugin_of_opencode_1_is_a_file_of_its_tools_or_says_that_it_has_none(
    daemon: RunningDaemon,
) -> None:
    for name, text in PLUGINS.items():
        save(daemon, f"{name}.ts", text)
    async with daemon.connect() as session:
        await session.described()
        assert set(session.catalog.tools) == {"shout", "loud", "served", "beside"}
        for name in ("shout", "loud", "served"):
            assert (await session.call(name, {"text": "hi"})).text == "HI"
        said = {Path(problem.path).stem: problem.message for problem in session.catalog.problems}
        assert set(said) == {"server", "hooks", "asks"}
        assert "it has not both a function execute()" in said["server"]
        assert said["hooks"].startswith("has no tool: it is a plugin of OpenCode")
        assert said["asks"].startswith("client.session.list() is OpenCode's own")


DATA = {
    "j.json": '{"a": 1, "b-c": [2], "class": {"d": null}}',
    "c.jsonc": '{ // one\n "a": 1, /* two */ "b": "http://x", }',
    "y.yaml": "a: 1\nb: [x, 2026-01-02, yes, ~]\nc: &x {d: 1}\ne:\n  <<: *x\n",
    "m.yml": "a: 1\n---\nb: 2\n",
    "t.toml": 'a = 1\nd = 2026-01-02\n[t]\nb = "x"\n',
}
READ = {
    "j": {"a": 1, "b-c": [2], "class": {"d": None}},
    "c": {"a": 1, "b": "http://x"},
    "y": {"a": 1, "b": ["x", "2026-01-02", "yes", None], "c": {"d": 1}, "e": {"d": 1}},
    "m": [{"a": 1}, {"b": 2}],
    "t": {"a": 1, "d": "2026-01-02", "t": {"b": "x"}},
}


@pytest.mark.slow
async def test_data_is_imported_with_and_without_its_type(daemon: RunningDaemon) -> None:
    for name, text in DATA.items():
        save(daemon, f"data/{name}", text)
        stem, _, kind = name.partition(".")
        bare = f'import {stem} from "./data/{name}"'
        body = f'{{ description: "Read.", args: {{}}, async execute() {{ return JSON.stringify({stem}) }} }}'
        save(daemon, f"bare_{stem}.ts", f"{bare}\nexport default {body}")
        save(daemon, f"with_{stem}.mjs", f'{bare} with {{ type: "{kind}" }}\nexport default {body}')
    keys = 'import { a } from "./data/j.json"\nimport { t } from "./data/t.toml" with { type: "toml" }\nimport { "b-c" as b } from "./data/j"\n'
    save(daemon, "keys.ts", f'{keys}const r = require("./data/j.json")\nconst l = (await import("./data/y.yaml")).default\n'
         'export default { description: "Keys.", args: {}, execute: () => JSON.stringify([a, t, b, r.a, l.a]) }')  # fmt: skip
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        for stem, value in READ.items():
            assert json.loads((await session.call(f"bare_{stem}")).text) == value
            assert json.loads((await session.call(f"with_{stem}")).text) == value
        assert json.loads((await session.call("keys")).text) == [1, {"b": "x"}, [2], 1, 1]


@pytest.mark.slow
async def test_a_mistake_in_data_is_named_with_its_file_and_line(daemon: RunningDaemon) -> None:
    broken = {"j.json": '{\n  "a": ,\n}', "y.yaml": "a: 1\nb: [1, 2\nc: 3\n", "t.toml": "a = 1\nb = = 2\n"}
    for name, text in broken.items():
        save(daemon, f"data/{name}", text)
        save(daemon, f"{name[0]}.ts", f'// 1\nimport x from "./data/{name}"\nexport default x')
    problems = await problems_of(daemon)
    for name, text in broken.items():
        problem = problems[name[0]]
        first, shown, carets = problem.message.split("\n")
        assert f"/data/{name} line " in first, problem.message
        assert problem.line == 2
        assert shown.strip() in text
        assert carets.strip("^ ") == ""
    assert f"in {daemon.project}/.opencode/tool/data/t.toml line 2" in problems["t"].message
