"""The resources and prompts that the conformance suite of MCP asks a server for: a server of the SDK on stdio."""

from __future__ import annotations

import base64

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from pydantic import BaseModel

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()

server = MCPServer("test")


class Answer(BaseModel):
    """What the user is asked for."""

    context: str


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture."""
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text."""
    return "Watched."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002  the suite's name
    """A text for an id."""
    return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'


@server.prompt("test_simple_prompt")
def simple() -> str:
    """A text."""
    return "This is a simple prompt for testing."


@server.prompt("test_prompt_with_arguments")
def with_arguments(arg1: str, arg2: str) -> str:
    """A text with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt("test_prompt_with_embedded_resource")
def with_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803  the suite's name
    """A resource in it."""
    inner = types.TextResourceContents(
        uri=resourceUri, mime_type="text/plain", text="Embedded resource content."
    )
    return [
        UserMessage(content=types.EmbeddedResource(type="resource", resource=inner)),
        UserMessage(content="Please process the embedded resource above."),
    ]


@server.prompt("test_prompt_with_image")
def with_image() -> list[UserMessage]:
    """A picture in it."""
    return [
        UserMessage(content=types.ImageContent(type="image", data=PIXEL, mime_type="image/png")),
        UserMessage(content="Please analyze the image above."),
    ]


@server.prompt("test_input_required_result_prompt")
async def asking(context: Context) -> str:
    """Ask the user first."""
    answer = await context.elicit("What context should the prompt use?", Answer)
    return f"Use this context: {answer}"


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(
    ref: object, argument: types.CompletionArgument, context: types.CompletionContext | None
) -> types.Completion:
    """Complete whatever is asked."""
    values = [each for each in ("paris", "park", "party") if each.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


if __name__ == "__main__":
    server.run()
