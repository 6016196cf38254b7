"""What a tool in TypeScript may return, and which exports are tools: the same as in Python, on both engines."""

from __future__ import annotations

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


WRITTEN = {
    'new TextEncoder().encode("hé")': "hé",
    'Buffer.from("hi")': "hi",
    'new TextEncoder().encode("hi").buffer': "hi",
    'new DataView(new TextEncoder().encode("-hi-").buffer, 1, 2)': "hi",
    '[Buffer.from("hi"), new Uint8Array([104])]': '["hi","h"]',
    "new Float64Array([1, 2.5, NaN])": '[1,2.5,"NaN"]',
    "({ a: new BigInt64Array([1n]) })": '{"a":["1"]}',
    "({ a: /a+/g })": '{"a":"a+"}',
    "({ a: new Set([1]), b: new Map([[1, 2]]), c: undefined })": '{"a":[1],"b":{"1":2}}',
    "[new Date(0), new Date(NaN)]": '["1970-01-01T00:00:00.000Z","Invalid Date"]',
    "new (class { constructor() { this.a = 1 } })()": '{"a":1}',
    "({ a: new Headers({ A: 'b' }) })": '{"a":{"a":"b"}}',
    "({ a: new Headers([['set-cookie', 'a=1'], ['set-cookie', 'b=2']]) })": '{"a":{"set-cookie":["a=1","b=2"]}}',
    "new Map([[1, 2], [null, 3], ['a', new Map()]])": '{"1":2,"null":3,"a":{}}',
    "({ a: Object.create(null), b: new Number(1), c: [] })": '{"a":{},"b":1,"c":[]}',
    'new URL("https://example.org/a")': '"https://example.org/a"',
}
REFUSED = {
    'new Error("lost")': "Error",
    'Object.assign(new TypeError("lost"), { code: 1 })': "TypeError",
    "({ a: [new Error()] })": "Error",
    'new Response("body")': "Response",
    'new Response("x").body': "ReadableStream",
    "[new AbortController().signal]": "AbortSignal",
    "(function* () { yield 1 })()": "Generator",
    "(async function* () { yield 1 })()": "AsyncGenerator",
    'process.getBuiltinModule("node:stream").Readable.from(["a"])': "Readable",
    "new WeakMap()": "WeakMap",
    "[Promise.resolve(1)]": "Promise",
    "new (class Hidden { #a = 1 })()": "Hidden",
    "({ a: () => 1 })": "function",
    "({ a: Symbol() })": "symbol",
    "new Map([[Symbol('a'), 1]])": "symbol",
}


WAYS_OUT = {
    "Error": "Throw it",
    "TypeError": "Throw it",
    "Response": "Return what it has: await response.text()",
    "ReadableStream": "Return its text: await new Response(stream).text().",
    "Generator": "Return a list: [...values].",
    "AsyncGenerator": "Return a list: await Array.fromAsync(values).",
    "Readable": "Return a list: await Array.fromAsync(values).",
    "Promise": "Return its value, by `await`.",
    "function": "Call it, and return what that gives.",
}


def tools(values: dict[str, str]) -> str:
    """A file with a tool for each value; it returns its value."""
    return "\n".join(
        f'export const v{number} = {{ description: "Return.", args: {{}}, async execute() {{ return {value} }} }}'
        for number, value in enumerate(values)
    )


@pytest.mark.slow
async def test_a_value_is_written_as_python_writes_its_neighbour(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools(WRITTEN))
    async with daemon.connect() as session:
        told = {value: (await session.call(f"some_v{number}")).text for number, value in enumerate(WRITTEN)}
    assert told == WRITTEN


@pytest.mark.slow
async def test_a_value_without_a_json_form_is_refused_by_its_type(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools(REFUSED))
    async with daemon.connect() as session:
        for number, kind in enumerate(REFUSED.values()):
            outcome = await session.call(f"some_v{number}")
            assert (kind, outcome.kind) == (kind, "tool_error"), outcome.text
            told = WAYS_OUT.get(kind, "Return text or plain data.")
            assert f"something of type {kind} that has no JSON form. {told}" in outcome.text


SAME_KEYS = {
    'new Map([[1, "a"], ["1", "b"]])': """the keys 1 and '1', which are both "1" in JSON""",
    "({ a: [new Map([[true, 1], ['true', 2]])] })": """the keys true and 'true', which are both "true" in JSON""",
    "new Map([[null, 1], ['null', 2]])": """the keys null and 'null', which are both "null" in JSON""",
    "new Map([[{ a: 1 }, 1], [{}, 2]])": """the keys { a: 1 } and {}, which are both "[object Object]" in JSON""",
    "({ content: 'x', details: new Map([[1n, 1], [1, 2]]) })": """the keys 1n and 1, which are both "1" in JSON""",
}


@pytest.mark.slow
async def test_keys_of_a_map_that_are_the_same_in_an_object_are_an_error_that_names_them(
    daemon: RunningDaemon,
) -> None:
    save(daemon, "some.ts", tools(SAME_KEYS))
    async with daemon.connect() as session:
        for number, told in enumerate(SAME_KEYS.values()):
            outcome = await session.call(f"some_v{number}")
            assert (told, outcome.kind) == (told, "tool_error"), outcome.text
            assert f"returned a Map with {told}, so a value would be lost." in outcome.text


@pytest.mark.slow
async def test_bytes_that_are_no_text_are_refused_with_what_to_return(daemon: RunningDaemon) -> None:
    save(daemon, "some.ts", tools({"Buffer.from([255])": "", "[new Uint8Array([255, 254])]": ""}))
    async with daemon.connect() as session:
        for number in range(2):
            outcome = await session.call(f"some_v{number}")
            assert outcome.kind == "tool_error"
            assert f"returned {number + 1} bytes that are no UTF-8 text; a picture is" in outcome.text


BODY = '{ description: "Return.", args: {}, async execute() { return "ran" } }'
MARK = 'Object.defineProperty(exports, "__esModule", { value: true })\n'
COMMON = {
    "tsc": (f'"use strict"\n{MARK}exports.default = {BODY}', {"tsc"}),
    "babel": (f"exports.__esModule = true\nexports.default = {BODY}", {"babel"}),
    "named": (f"{MARK}exports.default = {BODY}\nexports.other = {BODY}", {"named", "named_other"}),
    "bundled": (
        (
            f"const all = {{}}\nfor (const name of ['default', 'more']) {{ const tool = {BODY}; "
            "Object.defineProperty(all, name, { get: () => tool, enumerable: true }) }\n"
            "module.exports = Object.defineProperty(all, '__esModule', { value: true })"
        ),
        {"bundled", "bundled_more"},
    ),
    "plain": (f"module.exports = {BODY}", {"plain"}),
}


@pytest.mark.slow
async def test_a_default_export_that_a_compiler_wrote_as_common_js_has_the_name_of_its_file(
    daemon: RunningDaemon,
) -> None:
    for stem, (text, _) in COMMON.items():
        save(daemon, f"{stem}.js", text)
    names = set[str]().union(*(names for _, names in COMMON.values()))
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        assert set(session.catalog.tools) == names
        assert {(await session.call(name)).text for name in sorted(names)} == {"ran"}


def save(daemon: RunningDaemon, name: str, text: str) -> None:
    path = daemon.project / ".opencode/tool" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
