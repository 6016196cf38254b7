"""Files that were written for FastMCP or the MCP SDK: their tools run unchanged, each call in its cell."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import FileData, Question, question_service

pytestmark = pytest.mark.anyio

# Without the SDK, whose import takes a second.
BARE = "import sys\nsys.path = [place for place in sys.path if 'site-packages' not in place]\n"
SERVER = BARE + dedent('''
    from contextlib import asynccontextmanager
    from dataclasses import dataclass
    from enum import Enum
    from typing import Annotated, Any

    from fastmcp import Context, FastMCP
    from fastmcp.dependencies import CurrentContext, Depends, Progress
    from fastmcp.exceptions import ToolError
    from fastmcp.server.auth.providers.github import GitHubProvider
    from fastmcp.server.dependencies import get_context
    from fastmcp.tools import tool
    from fastmcp.tools.tool import ToolResult
    from fastmcp.utilities.types import Audio, File, Image
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink, TextContent
    from mcp.types import ToolAnnotations
    from pydantic import Field

    mcp = FastMCP("Server", auth=GitHubProvider(client_id="x"))
    inner = FastMCP("Inner")
    closed = []

    @mcp.tool
    def add(a: int, b: Annotated[int, "the second", Field(le=9)] = 2) -> int:
        """Add two numbers."""
        return a + b

    @mcp.tool(name="look-up", description="Looks up.", tags={"a"}, annotations=ToolAnnotations(title="Look up", readOnlyHint=True, destructiveHint=False), timeout=7)
    async def look(query: str, ctx: Context) -> dict[str, str]:
        await ctx.info(f"looking for {query}")
        await ctx.report_progress(1, 2, "half")
        await ctx.set_state("last", query)
        return {"query": query, "id": ctx.request_id, "again": await get_context().get_state("last")}

    @mcp.tool("fails")
    def failing() -> str:
        raise ToolError("not today")

    @asynccontextmanager
    async def database():
        yield "db"
        closed.append(1)

    @mcp.tool
    async def depends(text: str, db: str = Depends(database), ctx: Context = CurrentContext(), bar: Progress = Progress()) -> str:
        await bar.set_total(3)
        await bar.increment()
        return f"{text} {db} {ctx.session_id} {len(closed)}"

    @mcp.tool(exclude_args=["hidden"])
    def parts(hidden: str = "h"):
        return [
            TextContent(type="text", text=hidden),
            ImageContent(type="image", data="iVBORw0KGgo=", mimeType="image/png"),
            ResourceLink(type="resource_link", name="doc", uri="https://example.org/doc"),
            File(data=b"plain", format="txt"),
        ]

    @mcp.tool
    def both() -> ToolResult:
        return ToolResult(content=[TextContent(type="text", text="shown")], structured_content={"kept": 1})

    @mcp.tool
    def sound() -> File:
        return File(data=b"\\xff\\x00", format="mp3")

    @mcp.tool
    def sounds() -> list[Any]:
        resource = BlobResourceContents(uri="f:///a/b.pdf", blob="JVBERg==", mimeType="application/pdf")
        return [
            Audio(data=b"\\xff", format="wav"),
            AudioContent(type="audio", data="//8=", mimeType="audio/ogg"),
            EmbeddedResource(type="resource", resource=resource),
            File(data=b"plain"),
        ]

    @mcp.tool(output_schema=None)
    def untyped() -> int:
        return 1

    @mcp.tool
    async def agree(ctx: Context) -> str:
        return (await ctx.elicit("Go on?", response_type=None)).action

    @mcp.tool
    async def name(ctx: Context) -> str:
        return (await ctx.elicit("Your name?", response_type=str)).data

    @mcp.tool
    async def age(ctx: Context) -> str:
        return (await ctx.elicit("Your age?", response_type=int)).data

    class Size(Enum):
        SMALL = "small"
        LARGE = "large"

    @dataclass
    class Order:
        name: str
        size: Size = Size.SMALL
        count: int = 1

    @mcp.tool
    async def orders(ctx: Context) -> str:
        said = await ctx.elicit("What?", response_type=Order)
        return f"{said.action} {getattr(said, 'data', None)}"

    @mcp.tool
    async def words(ctx: Context) -> str:
        said = await ctx.sample(["Greet", TextMessage("assistant", TextContent(type="text", text="Whom?"))], system_prompt="Be brief.", temperature=0.5)
        return said.text

    @mcp.tool
    async def chooses(ctx: Context) -> str:
        return await ctx.sample("Greet", tools=[words])

    @mcp.tool
    async def roots(ctx: Context) -> str:
        return ",".join(root.uri for root in await ctx.list_roots())

    @dataclass
    class TextMessage:
        role: str
        content: TextContent

    @mcp.tool(enabled=False)
    def off() -> int:
        return 1

    @mcp.tool(tags={"internal"})
    def switched() -> int:
        return 1

    @inner.tool
    def picture() -> Image:
        return Image(data=b"\\x89PNG\\r\\n\\x1a\\n", format="png")

    @tool
    def alone(n: int) -> int:
        """Without a server."""
        return n

    @mcp.resource("data://config")
    def config() -> dict:
        return {}

    @mcp.prompt
    def ask(topic: str) -> str:
        return topic

    @mcp.custom_route("/health", methods=["GET"])
    async def health(request):
        return None

    mcp.mount(inner, prefix="in")
    mcp.disable(tags={"internal"})
    app = mcp.http_app()

    if __name__ == "__main__":
        mcp.run(transport="http")
''')
NAMES = {
    "add", "age", "agree", "alone", "both", "chooses", "depends", "fails", "in_picture", "look-up", "name", "orders", "parts", "roots", "sound", "sounds",
    "untyped", "words",
}  # fmt: skip


@pytest.mark.slow
async def test_the_tools_of_a_server_have_its_names_and_schemas(daemon: RunningDaemon) -> None:
    daemon.tool("server", SERVER)
    async with daemon.connect() as session:
        tools = dict(session.catalog.tools)
        assert not session.catalog.problems
    assert set(tools) == NAMES
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].input_schema["properties"]["b"] == {
        "type": "integer",
        "default": 2,
        "maximum": 9,
        "description": "the second",
    }
    assert tools["look-up"].input_schema["required"] == ["query"], "the context is no argument"
    look = tools["look-up"]
    assert (look.title, look.read_only, look.destructive) == ("Look up", True, False)
    assert look.output_schema == {"type": "object", "additionalProperties": {"type": "string"}}
    assert [name for name, tool in tools.items() if tool.output_schema] == ["add", "alone", "look-up"]
    assert set(tools["depends"].input_schema["properties"]) == {"text"}
    assert not tools["parts"].input_schema["properties"]


@pytest.mark.slow
async def test_calls_have_the_context_and_results_of_the_library(daemon: RunningDaemon) -> None:
    daemon.tool("server", SERVER)
    async with daemon.connect() as session:
        assert (await session.call("add", {"a": 1})).details == 3
        assert (await session.call("add", {"a": 1, "b": 10})).kind == "invalid_arguments"
        call = session.call("look-up", {"query": "x"}, session_id="s")
        events = [type(event).__name__ async for event in call]
        outcome = await call
        assert {"Log", "Progress"} <= set(events)
        assert outcome.details == {"query": "x", "id": call.id, "again": "x"}
        failed = await session.call("fails")
        assert (failed.kind, failed.text) == ("tool_error", "not today")
        assert (await session.call("depends", {"text": "a"}, session_id="s")).text == "a db s 0"
        assert (await session.call("depends", {"text": "a"}, session_id="s")).text == "a db s 1", (
            "it was closed"
        )
        both = await session.call("both")
        assert (both.text, both.details) == ("shown", {"kept": 1})
        kinds = [type(block).__name__ for block in (await session.call("parts")).content]
        assert kinds == ["Text", "ImageData", "ResourceLink", "Text"]
        assert [type(block).__name__ for block in (await session.call("in_picture")).content] == ["ImageData"]
        assert (await session.call("alone", {"n": 4})).details == 4
        sound = await session.call("sound")
        assert sound.content == (FileData(b"\xff\0", "audio/mpeg", "file.mp3"),)
        assert [str(block) for block in (await session.call("sounds")).content] == [
            "[file: file.wav, audio/wav, 1 bytes]",
            "[file: sound, audio/ogg, 2 bytes]",
            "[file: b.pdf, application/pdf, 4 bytes]",
            "Text('plain')",
        ]
        assert (await session.call("look-up", {"query": "x"}, session_id="s")).structured


@pytest.mark.slow
async def test_the_user_is_asked_for_agreement_and_for_texts(daemon: RunningDaemon) -> None:
    daemon.tool("server", SERVER)

    async def yes(_: object) -> bool:
        return True

    async def ada(question: Question) -> str:
        return "36" if question.message.startswith("Your age?") else "Ada"

    async with daemon.connect(ask=yes, services={"ui.question": question_service(ada)}) as session:
        assert (await session.call("agree")).text == "accept"
        assert (await session.call("name")).text == "Ada"
        assert (await session.call("age")).text == "36"
    async with daemon.connect() as session:
        assert (
            "the user could not be asked, as python shows no questions" in (await session.call("name")).text
        )
        assert (await session.call("agree")).text == "decline"


async def test_an_mcp_host_is_asked_for_forms_completions_and_roots(daemon: RunningDaemon) -> None:
    daemon.tool("server", SERVER)
    asked: list[Any] = []
    answers: list[Any] = [
        {"action": "accept", "content": {"value": 36}},
        {"action": "accept", "content": {"name": "Ada", "size": "large"}},
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept", "content": {"name": 7}},
        {"role": "assistant", "content": {"type": "text", "text": "Hail"}, "model": "small"},
        {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]},
    ]

    async def host(call: object, **requests: Any) -> object:
        (name,) = requests
        asked.append(requests[name])
        return {name: answers.pop(0)}

    async with daemon.connect(services={"mcp.input": host}) as session:
        assert (await session.call("age")).text == "36"
        assert (await session.call("orders")).text == (
            "accept Order(name='Ada', size=<Size.LARGE: 'large'>, count=1)"
        )
        assert (await session.call("orders")).text == "decline None"
        assert (await session.call("orders")).text == "cancel None"
        assert "answer to 'What?' does not fit" in (await session.call("orders")).text
        assert (await session.call("words")).text == "Hail"
        assert (await session.call("roots")).text == "file:///a,file:///b"
        assert "takes no tools here" in (await session.call("chooses")).text
    assert asked[0] == {
        "method": "elicitation/create",
        "params": {
            "message": "Your age?",
            "requestedSchema": {
                "type": "object",
                "properties": {"value": {"type": "integer"}},
                "required": ["value"],
            },
        },
    }
    assert asked[1]["params"]["requestedSchema"]["properties"]["size"] == {
        "default": "small",
        "enum": ["small", "large"],
        "title": "Size",
        "type": "string",
    }
    assert asked[5] == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Greet"}},
                {"role": "assistant", "content": {"type": "text", "text": "Whom?"}},
            ],
            "maxTokens": 512,
            "systemPrompt": "Be brief.",
            "temperature": 0.5,
        },
    }
    async with daemon.connect() as session:
        assert "offers no service 'mcp.input'" in (await session.call("words")).text


@pytest.mark.slow
async def test_the_lifespan_of_a_server_is_entered_for_each_call(daemon: RunningDaemon) -> None:
    daemon.tool(
        "life",
        BARE
        + dedent("""
        from contextlib import asynccontextmanager
        from mcp.server.mcpserver import Context, MCPServer

        left = []

        @asynccontextmanager
        async def lifespan(server):
            yield {"name": server.name}
            left.append(1)

        server = MCPServer("Life", lifespan=lifespan)

        @server.tool()
        def who(ctx: Context[object, dict]) -> str:
            return f"{ctx.request_context.lifespan_context['name']} {len(left)}"
        """),
    )
    async with daemon.connect() as session:
        assert [(await session.call("who")).text for _ in range(2)] == ["Life 0", "Life 1"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from fastmcp.server.middleware import Middleware", "fastmcp.server.middleware"),
        ("from fastmcp import Missing", "fastmcp.Missing"),
        ("import fastmcp.experimental.code", "fastmcp.experimental"),
    ],
)
async def test_what_the_stand_ins_lack_is_named(daemon: RunningDaemon, line: str, name: str) -> None:
    daemon.tool("lacking", f"{line}\n")
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
    assert problem.message.startswith(f"{name}: Toolcell has stand-ins"), problem.message


@pytest.mark.slow
async def test_a_server_that_a_file_only_imports_is_not_offered_twice(daemon: RunningDaemon) -> None:
    directory = daemon.tool(
        "main",
        """
        from fastmcp import FastMCP
        from helper_server import other

        mine = FastMCP("Mine")
        mine.mount(other, namespace="other")

        @mine.tool
        def first() -> int:
            return 1
        """,
    ).parent
    (directory / "helper_server.py").write_text(
        "from fastmcp import FastMCP\nother = FastMCP('Other')\n\n@other.tool\ndef second() -> int:\n    return 2\n"
    )
    async with daemon.connect() as session:
        names = sorted(session.catalog.tools)
        assert names == ["first", "other_second", "second"], "the helper's own file offers it as well"
        assert (await session.call("other_second")).details == 2


@pytest.mark.slow
@pytest.mark.parametrize("without", ["", BARE], ids=["installed", "not installed"])
async def test_types_are_those_of_the_sdk_or_stand_ins_where_it_is_not_installed(
    daemon: RunningDaemon, without: str
) -> None:
    daemon.tool(
        "bare",
        without
        + dedent("""
        from mcp.server.fastmcp import Context, FastMCP, Image
        from mcp.types import CallToolResult, TextContent, ToolAnnotations

        mcp = FastMCP("Bare")

        @mcp.tool(annotations=ToolAnnotations(readOnlyHint=True))
        async def told(ctx: Context) -> CallToolResult:
            await ctx.log("info", "a line")
            return CallToolResult(content=[TextContent(type="text", text="no")], isError=True, structuredContent={"a": 1})
        """),
    )
    async with daemon.connect() as session:
        assert session.catalog.tools["told"].read_only
        outcome = await session.call("told")
    assert (outcome.kind, outcome.text, outcome.details) == ("tool_error", "no", {"a": 1})
