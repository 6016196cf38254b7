"""Lists, mappings and factories of tools."""

from __future__ import annotations

import asyncio
import inspect
import json
import textwrap
from types import ModuleType
from typing import Any

import pytest

from toolcell._authoring.discover import Exports, exports
from toolcell.testing import FakeContext


def load(source: str) -> Exports:
    module = ModuleType("made")
    exec(compile(textwrap.dedent(source), "made.py", "exec"), vars(module))
    return exports(vars(module), "made")


def call(found: Exports, name: str, context: FakeContext | None = None, **arguments: Any) -> Any:
    (tool,) = [tool for tool in found.tools if tool.name == name]
    value = tool.invoke(tool.arguments(json.dumps(arguments).encode()), context or FakeContext())
    return asyncio.run(value) if inspect.iscoroutine(value) else value


FACTORY = """
    from toolcell import ToolContext, tool

    class Notes:
        def __init__(self, directory):
            self.items = []

        @tool
        def add(self, text: str, context: ToolContext) -> int:
            "Add a note."
            self.items.append(text)
            return len(self.items)

        @tool(name="all-notes")
        async def every(self) -> list[str]:
            "All notes."
            return self.items

    {define} tools(host):
        notes = Notes(host.directory)
        return [notes.add, notes.every]
"""


@pytest.mark.parametrize("define", ["def", "async def"])
def test_a_factory_returns_tools_that_share_what_it_made(define: str) -> None:
    found = load(FACTORY.format(define=define))
    assert [tool.name for tool in found.tools] == ["made_add", "all-notes"]
    assert not found.problems
    assert call(found, "made_add", text="a") == 1
    assert call(found, "all-notes") == ["a"]


@pytest.mark.parametrize(
    "signature",
    [
        "call_id, params, on_update, context, signal",
        "_id, params, on_update=None, context=None, signal=None",
        "call_id, params, signal, on_update, context",
        "call_id, params, on_update",
    ],
)
def test_the_arguments_of_execute_come_in_the_order_of_its_system(signature: str) -> None:
    found = load(f"""
        from toolcell import ToolContext

        def default(host):
            async def execute({signature}):
                on_update({{"content": [{{"type": "text", "text": "half"}}], "details": {{"n": 1}}}})
                assert "context" not in locals() or isinstance(context, ToolContext)
                assert "signal" not in locals() or not signal
                return {{"content": [{{"type": "text", "text": params["glob"]}}], "details": {{"id": "_id" in locals()}}}}

            return {{
                "name": "stats",
                "label": "Stats",
                "description": "Counts.",
                "parameters": host.schema({{"glob": str}}),
                "execute": execute,
            }}
    """)
    (tool,) = found.tools
    assert (tool.name, tool.description, tool.is_async) == ("stats", "Counts.", True)
    assert tool.input_schema["required"] == ["glob"]
    context = FakeContext()
    result = tool.normalise(call(found, "stats", context, glob="*.py"))
    assert result.blocks[0].text == "*.py"  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(context.updates) == 1


def test_a_list_and_a_mapping_are_exports() -> None:
    found = load("""
        from toolcell import tool

        def make(n):
            return tool(description=f"Tool {n}.", execute=lambda args, context: n)

        tools = [{"name": "listed", "description": "Listed.", "execute": lambda args, context: "l"}]
        TOOLS = {"one": make(1), "two": make(2)}
    """)
    assert [tool.name for tool in found.tools] == ["listed", "one", "two"]
    assert [call(found, name) for name in ("listed", "one", "two")] == ["l", 1, 2]


def test_a_tool_that_is_listed_and_decorated_is_one() -> None:
    found = load("""
        from toolcell import tool

        @tool
        def made() -> int:
            "Made."
            return 1

        tools = [made]
    """)
    assert [tool.name for tool in found.tools] == ["made"]
    assert not found.problems


def test_an_invalid_element_rejects_no_other() -> None:
    found = load("""
        def tools(host):
            good = {"name": "good", "description": "Good.", "execute": lambda args, context: 1}
            return [good, {"name": "bad"}, 3]
    """)
    assert [tool.name for tool in found.tools] == ["good"]
    assert [problem.message.partition(":")[0] for problem in found.problems] == [
        "tools() has an invalid tool at index 1",
        "tools() has an invalid tool at index 2",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "tools = ['a', 'b']",
        "TOOLS = {'a': 1}",
        "def default(): return 1",
        "def factory(a, b): return 1",
        "tools = None",
        "from os.path import join as default",
    ],
)
def test_other_things_of_these_names_are_left_alone(source: str) -> None:
    found = load(source)
    assert not found.tools
    assert not found.problems


def test_what_a_factory_raises_or_returns_is_the_error_of_the_file() -> None:
    with pytest.raises(TypeError, match=r"factory\(\) returned int; a factory returns one tool, a list"):
        load("def factory(host): return 3")
    with pytest.raises(ZeroDivisionError):
        load("def factory(host): return 1 / 0")


def test_the_host_runs_programs_and_has_no_screen() -> None:
    found = load("""
        async def factory(host):
            done = await host.exec("printf", ["%s", host.cwd])
            assert not host.has_ui
            host.logger.info("made")
            return {"name": "where", "description": "Where.", "execute": lambda args, context: done.stdout}
    """)
    assert call(found, "where").startswith("/")
