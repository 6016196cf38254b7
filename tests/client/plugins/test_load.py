"""A plugin file: what it has to be, and what is said of each mistake."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.plugins.kit import SHELL, TEXT, call, entry, load, plugin, problems

from toolcell._plugins.load import PluginFileError, read
from toolcell.testing import FakeContext

FILES = {
    "": (b"", 1, "is not JSON: Expecting value"),
    "a comma": (b'{"name": "x",\n "tools": [},\n]}', 2, "is not JSON: Expecting value, column 12"),
    "bytes": (b'{"name":\n "\xff"}', 2, "is not UTF-8"),
    "NaN": (b'{"name": NaN}', 0, "is not JSON: NaN is no number there"),
    "twice": (b'{"name": "x", "name": "y", "tools": []}', 0, 'is not JSON: an object has the key "name" twice'),
    "deep": (b"[" * 100_000, 0, "is nested too deeply"),
    "a long number": (b"1" * 10_000, 0, "is not JSON"),
    "an array": (b"[]", 0, "is no plugin file"),
    "a package": (b'{"name": "x", "private": true}', 0, "is no plugin file: tools: is missing; private: is not known here"),
    "no name": (plugin(entry(SHELL), name=None), 0, "is no plugin file: name: should be a valid string, got null"),
    "no tools": (b'{"name": "x", "tools": []}', 0, "is no plugin file: tools: should have at least 1 item"),
    "tools": (b'{"name": "x", "tools": {}}', 0, "is no plugin file: tools: should be a valid list"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "line", "message"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_plugin_file_is_said_with_its_line(content: bytes, line: int, message: str) -> None:
    with pytest.raises(PluginFileError) as raised:
        read(content, "/nowhere", describe=True)
    assert str(raised.value).startswith(message)
    assert raised.value.line == line


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in entry(SHELL).items() if name != key}


ENTRIES = {
    "name": (without("name"), "tools[0]: name: is missing"),
    "description": (without("description"), "tools[0] (it): description: is missing"),
    "inputSchema": (without("inputSchema"), "tools[0] (it): inputSchema: is missing"),
    "handler": (without("handler"), "tools[0] (it): handler: is missing"),
    "illegal name": (entry(SHELL, name="a b"), 'tools[0] (a b): name: should match ^[a-zA-Z0-9_-]{1,64}$, got "a b"'),
    "reserved name": (entry(SHELL, name="a__b"), "tools[0] (a__b): a tool's name is 1 to 64 letters"),
    "a key too many": (entry(SHELL, timeout=3), "tools[0] (it): timeout: is not known here; there are: description"),
    "a misspelt key": (entry({**SHELL, "timout": 3}), "tools[0] (it): handler.timout: is not known here"),
    "a kind of handler": (entry({"type": "exec"}), 'tools[0] (it): handler: should have as type one of "shell"'),
    "no kind": (entry({"command": "x"}), "tools[0] (it): handler: should have the key type"),
    "no command": (entry({"type": "shell"}), "tools[0] (it): handler.command: is missing"),
    "no time": (entry({**SHELL, "timeout": 0}), "tools[0] (it): handler.timeout: should be greater than or equal to 1"),
    "a text for a time": (entry({**SHELL, "timeout": "1"}), "tools[0] (it): handler.timeout: should be a valid integer"),
    "an exit code": (entry({**SHELL, "allowedExitCodes": [256]}), "tools[0] (it): handler.allowedExitCodes[0]: should be"),
    "a schema of text": (without("inputSchema") | {"inputSchema": TEXT}, 'tools[0] (it): inputSchema.type: should be "object"'),
    "an unknown keyword": (entry(SHELL, {"a": {"typ": "string"}}), "tools[0] (it): inputSchema.properties.a: the keyword 'typ'"),
    "an unknown type": (entry(SHELL, {"a": {"type": "text"}}), "tools[0] (it): inputSchema.properties.a: there is no type"),
    "a long description": (entry(SHELL, description="x" * 9000), "tools[0] (it): its description has more than 8192 bytes"),
    "no object": (5, "tools[0]: should be a valid dictionary"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), ENTRIES.values(), ids=ENTRIES)
def test_each_mistake_names_the_entry_and_the_field(wrong: object, message: str) -> None:
    (problem,) = problems(wrong)
    assert problem.startswith(message)


def test_one_bad_entry_rejects_no_other() -> None:
    loaded = load(entry(SHELL), *(wrong for wrong, _ in ENTRIES.values()), entry(SHELL, name="last"))
    assert [tool.name for tool in loaded.tools] == ["it", "last"]
    assert {problem.message.partition("]")[0] for problem in loaded.problems} == {
        f"tools[{number}" for number in range(1, len(ENTRIES) + 1)
    }


def test_the_second_tool_of_a_name_is_rejected() -> None:
    loaded = load(entry(SHELL), entry(SHELL, description="Another."))
    assert [tool.description for tool in loaded.tools] == ["Do it."]
    (problem,) = loaded.problems
    assert problem.message.startswith("tools[1] (it): has the name of an earlier tool of this file")


def test_an_entry_with_many_mistakes_is_a_few_problems() -> None:
    handler = {**SHELL, **{f"key{number}": 1 for number in range(100)}}
    assert len(problems(entry(handler))) == 5


def test_a_file_has_a_bounded_number_of_tools() -> None:
    loaded = load(*(entry(SHELL, name=f"t{number}") for number in range(300)))
    assert len(loaded.tools) == 256
    assert [problem.message for problem in loaded.problems] == [
        "300 tools; only the first 256 of a file are used"
    ]


def test_python_s_spelling_of_a_key_is_accepted() -> None:
    assert len(load(entry({**SHELL, "allowed_exit_codes": [0, 1]})).tools) == 1


def test_the_arguments_are_held_against_the_schema() -> None:
    from toolcell._results.errors import InvalidArguments

    (found,) = load(entry(SHELL, {"count": {"type": "integer", "maximum": 3}})).tools
    with pytest.raises(InvalidArguments, match="count: should be at most 3, got 4"):
        found.arguments(b'{"count": 4}')
    with pytest.raises(InvalidArguments, match="other: is not an argument of this tool"):
        found.arguments(b'{"other": 4}')


@pytest.mark.anyio
async def test_the_default_of_the_schema_takes_the_place_of_an_absent_parameter(tmp_path: Path) -> None:
    handler = {"type": "shell", "command": "printf %s. {{a}} {{b}}"}
    (found,) = load(
        entry(handler, {"a": {"type": "string", "default": "one"}, "b": {"type": "string"}})
    ).tools
    assert await call(found, FakeContext(directory=tmp_path)) == "one."
    assert await call(found, FakeContext(directory=tmp_path), a="two", b="three") == "two.three."


def test_a_byte_order_mark_is_accepted() -> None:
    assert len(read(b"\xef\xbb\xbf" + plugin(entry(SHELL)), "/", describe=True).tools) == 1


def test_the_schema_and_the_collection_of_an_editor_are_accepted() -> None:
    content = json.dumps(
        {"$schema": "./_schema.json", "name": "x", "version": "1.0.0", "tools": [entry(SHELL)]}
    )
    assert len(read(content.encode(), "/", describe=True).tools) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("name", "description", "inputSchema", "handler")
HANDLED = (
    "type",
    "command",
    "url",
    "basePath",
    "timeout",
    "cwd",
    "headers",
    "allowedHosts",
    "rawParams",
    "method",
)
TEMPLATES = st.sampled_from(
    ["shell", "http", "file-read", "http://a/{{x}}", "a {{x}}", "{{", "$(", "'", "http://["]
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(HANDLED, JSON | TEMPLATES)),
    JSON,
)
def test_whatever_an_entry_holds_is_a_tool_or_a_problem(
    fields: dict[str, object], handler: dict[str, object], properties: object
) -> None:
    whole = entry(handler) | {"inputSchema": {"type": "object", "properties": properties}}
    for wrong in (fields, whole, {**entry(SHELL), **fields}):
        loaded = load(wrong)
        assert loaded.tools or loaded.problems


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_is_read_or_refused(content: bytes) -> None:
    with suppress(PluginFileError):
        read(content, "/", describe=True)


@pytest.mark.parametrize("depth", [50, 150, 300, 900])
def test_a_schema_that_is_nested_deeply_is_a_tool_or_a_problem(depth: int) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    content = plugin(entry(SHELL, {"x": schema}), entry(SHELL, name="last"))
    loaded = read(content, "/", describe=True)
    assert loaded.tools[-1].name == "last"
    assert len(loaded.tools) + len(loaded.problems) == 2
