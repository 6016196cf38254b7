"""Tools of other libraries are called as their authors call them: with validation, errors, approval and artifacts."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Ask, Session

pytestmark = pytest.mark.anyio

LANGCHAIN = """
    from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
    from pydantic import BaseModel, Field

    class Numbers(BaseModel):
        a: int = Field(description="the first")
        b: int = Field(default=4, ge=0)

    @tool
    def times(a: int, b: int) -> int:
        "Multiply two numbers."
        return a * b

    @tool("times-later", args_schema=Numbers)
    async def times_later(a: int, b: int) -> int:
        "Multiply two numbers."
        return a * b

    @tool(response_format="content_and_artifact")
    def listing(n: int) -> tuple[str, list[int]]:
        "List numbers."
        return f"{n} numbers", list(range(n))

    def refuse(why: str) -> str:
        raise ToolException(f"refused: {why}")

    refusing = StructuredTool.from_function(func=refuse, name="refusing", description="Refuses.")

    class Custom(BaseTool):
        name: str = "custom"
        description: str = "Adds."
        args_schema: type[BaseModel] = Numbers

        def _run(self, a: int, b: int) -> str:
            return str(a + b)

    custom = Custom()
"""
INJECTED = """
    from typing import Annotated, Any
    from langchain.tools import ToolRuntime
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, tool
    from langgraph.prebuilt import InjectedState, InjectedStore
    from pydantic import BaseModel, Field

    class OnlyA(BaseModel):
        a: int

    class Aliased(BaseModel):
        from_: int = Field(alias="from")
        user: Annotated[str, InjectedToolArg()] = "me"

    @tool
    def runtime(a: int, runtime: ToolRuntime) -> str:
        "A runtime."
        runtime.stream_writer("half")
        return f"{a} {runtime.tool_call_id} {runtime.state} {runtime.context} {runtime.config['tags']} {runtime.store}"

    @tool(args_schema=OnlyA)
    def beside(a: int, runtime: ToolRuntime[Any, dict]) -> str:
        "A runtime beside a schema."
        return f"{a} {runtime.tool_call_id}"

    @tool
    def state(a: int, state: Annotated[dict, InjectedState], config: RunnableConfig) -> str:
        "A whole state."
        return f"{a} {state} {'tags' in config}"

    @tool
    def call_id(a: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        "An id."
        return f"{a} {tool_call_id}"

    @tool
    def default(a: int, user: Annotated[str, InjectedState("user")] = "nobody") -> str:
        "A default."
        return f"{a} {user}"

    @tool(args_schema=Aliased)
    async def aliased(from_: int, user: str) -> str:
        "An alias."
        return f"{from_} {user}"

    class Own(BaseTool):
        name: str = "own"
        description: str = "A class."

        def _run(self, a: int, runtime: ToolRuntime) -> str:
            return f"{a} {runtime.tool_call_id}"

    own = Own()
"""
NOT_GIVEN = """
    from typing import Annotated, Any
    from langchain_core.tools import BaseTool, InjectedToolArg, tool
    from langgraph.prebuilt import InjectedState, InjectedStore
    from pydantic import BaseModel

    class Args(BaseModel):
        a: int
        key: Annotated[str, InjectedToolArg]

    @tool
    def plain(a: int, user: Annotated[str, InjectedToolArg]) -> str:
        "Needs an argument."
        return ""

    @tool
    def field(a: int, user: Annotated[str, InjectedState("user")]) -> str:
        "Needs a field of the state."
        return ""

    @tool
    def stored(a: int, store: Annotated[Any, InjectedStore()]) -> str:
        "Needs a store."
        return ""

    @tool(args_schema=Args)
    def schema(a: int, key: str) -> str:
        "Needs what its schema says."
        return ""

    class Later(BaseTool):
        name: str = "later"
        description: str = "Needs it in its coroutine."

        def _run(self, a: int) -> str:
            return ""

        async def _arun(self, a: int, token: Annotated[str, InjectedToolArg]) -> str:
            return ""

    later = Later()

    @tool
    def fine(a: int) -> str:
        "Needs nothing."
        return str(a)
"""
SMOLAGENTS = """
    from smolagents import Tool, tool

    @tool
    def repeat(text: str, times: int = 2) -> str:
        '''Repeat a text.

        Args:
            text: What to repeat.
            times: How often.
        '''
        return text * times

    class Lookup(Tool):
        name = "lookup"
        description = "Looks up."
        inputs = {
            "word": {"type": "string", "description": "the word"},
            "deep": {"type": "boolean", "description": "more", "nullable": True},
        }
        output_type = "string"

        def setup(self):
            self.table = {"a": "first"}

        def forward(self, word: str, deep: bool | None = None) -> str:
            return f"{self.table[word]} {deep}"

    lookup = Lookup()
"""
OPENAI = """
    from agents import Agent, FunctionTool, RunContextWrapper, function_tool
    from pydantic import BaseModel

    class User(BaseModel):
        name: str
        age: int

    @function_tool(name_override="read", timeout=9)
    async def read_file(context: RunContextWrapper, path: str, directory: str | None = None) -> str:
        "Read a file."
        return f"{directory}/{path}"

    @function_tool(needs_approval=True)
    def drop(table: str) -> str:
        "Drop a table."
        return f"{table} dropped"

    async def process(context, arguments: str) -> str:
        user = User.model_validate_json(arguments)
        return f"{user.name} is {user.age}"

    user = FunctionTool(
        name="process_user", description="Processes a user.", params_json_schema=User.model_json_schema(),
        on_invoke_tool=process,
    )
    agent = Agent(name="A", tools=[read_file, drop])
"""
PYDANTIC_AI = """
    from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, Tool

    agent = Agent(deps_type=str)
    more = FunctionToolset()

    @agent.tool_plain
    def roll() -> int:
        "Roll a die."
        return 4

    @agent.tool
    def who(ctx: RunContext[str], greeting: str) -> str:
        "Greet."
        return f"{greeting} {ctx.deps} {ctx.tool_name}"

    @more.tool
    async def again(ctx: RunContext[None], city: str) -> str:
        "Ask again."
        raise ModelRetry(f"which {city}?")

    @more.tool_plain(requires_approval=True)
    def wipe() -> str:
        "Wipe."
        return "wiped"

    def listed(items: list[str], sep: str = ",") -> dict[str, str]:
        '''Join.

        Args:
            items: What to join.
            sep: What is between.
        '''
        return {"joined": sep.join(items)}

    joined = Tool(listed, name="join")
"""


@asynccontextmanager
async def session_with(daemon: RunningDaemon, source: str, **options: Any) -> AsyncGenerator[Session]:
    """A session that sees the tools of one file."""
    place = daemon.directory / "tools" / "file.py"
    place.write_text(textwrap.dedent(source))
    daemon.reload()
    try:
        async with daemon.connect(**options) as session:
            assert not session.catalog.problems
            yield session
    finally:
        place.unlink()


async def test_langchain(with_libraries: RunningDaemon) -> None:
    async with session_with(with_libraries, LANGCHAIN) as session:
        assert set(session.catalog.tools) == {"times", "times-later", "listing", "refusing", "custom"}
        assert (await session.call("times", {"a": 6, "b": 7})).text == "42"
        assert (await session.call("times", {"a": "six", "b": 7})).kind == "invalid_arguments"
        assert (await session.call("times-later", {"a": 2})).text == "8"
        listing = await session.call("listing", {"n": 3})
        assert (listing.text, listing.details) == ("3 numbers", [0, 1, 2])
        refused = await session.call("refusing", {"why": "late"})
        assert (refused.kind, refused.text) == ("tool_error", "refused: late")
        assert (await session.call("custom", {"a": 1, "b": 2})).text == "3"


async def test_langchains_injected_arguments_are_given_as_far_as_they_are_known(
    with_libraries: RunningDaemon,
) -> None:
    async with session_with(with_libraries, INJECTED) as session:
        for name, shown in session.catalog.tools.items():
            sent = "from" if name == "aliased" else "a"
            assert list(shown.input_schema["properties"]) == [sent]
            call = session.call(name, {sent: 1})
            expected = {
                "runtime": f"1 {call.id} {{}} None [] None",
                "state": "1 {} True",
                "default": "1 nobody",
                "aliased": "1 me",
            }
            assert (await call).text == expected.get(name, f"1 {call.id}")
        assert len(session.catalog.tools) == 7


async def test_a_tool_of_langchain_that_needs_another_injected_argument_is_rejected(
    with_libraries: RunningDaemon,
) -> None:
    place = with_libraries.directory / "tools" / "file.py"
    place.write_text(textwrap.dedent(NOT_GIVEN))
    with_libraries.reload()
    async with with_libraries.connect() as session:
        assert list(session.catalog.tools) == ["fine"]
        assert (await session.call("fine", {"a": 1})).text == "1"
        found = {
            problem.tool: problem.message.partition(" is given")[0] for problem in session.catalog.problems
        }
    place.unlink()
    assert found == {
        "plain": "its parameter 'user' (InjectedToolArg)",
        "field": "its parameter 'user' (InjectedState)",
        "stored": "its parameter 'store' (InjectedStore)",
        "schema": "its parameter 'key' (InjectedToolArg)",
        "later": "its parameter 'token' (InjectedToolArg)",
    }


async def test_smolagents(with_libraries: RunningDaemon) -> None:
    async with session_with(with_libraries, SMOLAGENTS) as session:
        properties = session.catalog.tools["repeat"].input_schema["properties"]
        assert properties["text"]["description"] == "What to repeat."
        assert (await session.call("repeat", {"text": "ab"})).text == "abab"
        assert (await session.call("lookup", {"word": "a"})).text == "first None"
        assert (await session.call("lookup", {"word": 1})).kind == "invalid_arguments"


async def test_openai_agents(with_libraries: RunningDaemon) -> None:
    asked: list[str] = []

    async def answer(ask: Ask) -> bool:
        asked.append(ask.question)
        return True

    async with session_with(with_libraries, OPENAI, ask=answer) as session:
        assert (await session.call("read", {"path": "a", "directory": "b"})).text == "b/a"
        assert (await session.call("process_user", {"name": "Ada", "age": 36})).text == "Ada is 36"
        assert (await session.call("drop", {"table": "t"})).text == "t dropped"
        assert asked == ['Run drop with {"table": "t"}?']
    async with session_with(with_libraries, OPENAI) as session:
        assert (await session.call("drop", {"table": "t"})).kind == "denied"


async def test_pydantic_ai(with_libraries: RunningDaemon) -> None:
    async with session_with(with_libraries, PYDANTIC_AI) as session:
        assert set(session.catalog.tools) == {"roll", "who", "again", "wipe", "join"}
        assert (await session.call("roll")).details == 4
        assert (await session.call("who", {"greeting": "Hi"})).text == "Hi None who"
        again = await session.call("again", {"city": "Rome"})
        assert (again.kind, again.text) == ("tool_error", "which Rome?")
        assert (await session.call("wipe")).kind == "denied"
        assert (await session.call("join", {"items": ["a", "b"]})).details == {"joined": "a,b"}
