"""What an author and a model are told of a tool in TypeScript that fails: the same as in Python, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

from toolcell.client import Problem

pytestmark = pytest.mark.anyio


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
        "TypeError: x\ncaused by first"
    ),
    'throw new AggregateError([new Error("one"), new TypeError("two")], "both")': "one\nTypeError: two",
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


async def test_causes_members_and_lines_are_told_within_a_bound(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools([*RAISED]))
    async with daemon.connect() as session:
        for number, (body, text) in enumerate(RAISED.items()):
            outcome = await session.call(f"some_v{number}")
            assert (body, outcome.kind, outcome.text) == (body, "tool_error", text)


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


async def test_what_cannot_be_read_of_an_exception_ends_the_call_at_once(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools(HOSTILE))
    save(daemon, "fine.ts", tools(['return "fine"']))
    for number, body in enumerate(HOSTILE):
        save(daemon, f"import{number}.ts", f"{{ {body} }}\nexport {{}}")
    async with daemon.connect() as session:
        await session.described()
        broken = [problem for problem in session.catalog.problems if problem.reason == "broken"]
        assert len(broken) == len(HOSTILE)
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
