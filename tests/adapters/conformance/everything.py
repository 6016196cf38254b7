"""The tools that the conformance suite of MCP asks a server for, as far as Toolcell has what they do."""

import asyncio
import time
from typing import Annotated, Any

from pydantic import Field

from toolcell import File, Image, ToolContext, ToolError, tool

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)  # one transparent pixel
PIXEL = Image(data=PICTURE)


def repeated(header: str) -> Any:
    """An argument that a header of the request repeats."""
    return Field(json_schema_extra={"x-mcp-header": header})


@tool(name="test_custom_headers")
def custom_headers(
    region: Annotated[str, repeated("Region")] = "",
    priority: Annotated[int, repeated("Priority")] = 0,
    verbose: Annotated[bool, repeated("Verbose")] = False,
    query: str = "",
) -> str:
    """A tool with arguments that headers repeat."""
    return f"{region} {priority} {verbose} {query}"


@tool(name="test_simple_text")
def simple_text() -> str:
    """A text."""
    return "This is a simple text response for testing."


@tool(name="test_image_content")
def image_content() -> Image:
    """A picture."""
    return PIXEL


@tool(name="test_audio_content")
def audio_content() -> File:
    """A sound."""
    return File(data=b"RIFF$\0\0\0WAVE", name="a.wav", mime_type="audio/wav")


@tool(name="test_embedded_resource")
def embedded_resource() -> File:
    """A file."""
    return File(data=b"This is an embedded resource content.", name="a.txt", mime_type="text/plain")


@tool(name="test_multiple_content_types")
def multiple_content_types() -> list[str | Image | File]:
    """A text, a picture and a file."""
    return ["Several blocks:", PIXEL, File(data=b'{"test":"data","value":123}', mime_type="application/json")]


@tool(name="test_tool_with_logging")
def tool_with_logging(context: ToolContext) -> str:
    """Log three times."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.log.info(line)
        time.sleep(0.05)
    return "done"


@tool(name="test_error_handling")
def error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool(name="test_tool_with_progress")
def tool_with_progress(context: ToolContext) -> str:
    """Tell how far it is."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        time.sleep(0.05)
    return "done"


@tool(name="test_logging_tool")
def logging_tool(context: ToolContext) -> str:
    """Log something."""
    context.log.info("Tool execution started")
    return "logged"


@tool(name="test_elicitation")
async def elicitation(message: str, context: ToolContext) -> str:
    """Ask."""
    await context.ask(message)
    return "User response: accepted"


@tool(name="test_streaming_elicitation")
async def streaming_elicitation(context: ToolContext) -> str:
    """Report, then ask."""
    context.progress(1, 2)
    await context.ask("Go on?")
    return "done"


@tool(name="test_input_required_result_request_state")
async def input_required_state(context: ToolContext) -> str:
    """Ask once, with a state."""
    await context.ask("Please confirm")
    return "state-ok"


@tool(name="test_input_required_result_tampered_state")
async def input_required_tampered_state(context: ToolContext) -> str:
    """Ask once, with a state."""
    await context.ask("Please confirm")
    return "state-ok"


@tool(name="test_input_required_result_multi_round")
async def input_required_rounds(context: ToolContext) -> str:
    """Ask twice."""
    name = await context.ui.input("Step 1: What is your name?")
    color = await context.ui.input("Step 2: What is your favorite color?")
    return f"{name} likes {color}"


def form(message: str, **fields: object) -> dict[str, object]:
    """A form with fields of the tool's own."""
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def completion(prompt: str) -> dict[str, object]:
    """A question to the model of the host."""
    said = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 100}}


ROOTS: dict[str, object] = {"method": "roots/list"}


@tool(name="test_elicitation_sep1034_defaults")
async def elicitation_defaults(context: ToolContext) -> str:
    """Ask for a value of each kind, with defaults."""
    asked = form(
        "Who?",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return f"Elicitation completed: {await context.request('mcp.input', who=asked)}"


@tool(name="test_elicitation_sep1330_enums")
async def elicitation_enums(context: ToolContext) -> str:
    """Let one and several of some be chosen."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    asked = form(
        "Which?",
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return f"Elicitation completed: {await context.request('mcp.input', which=asked)}"


@tool(name="test_input_required_result_elicitation")
async def input_required_elicitation(context: ToolContext) -> str:
    """Ask once."""
    asked = form("What is your name?", name={"type": "string"})
    said = await context.request("mcp.input", user_name=asked)
    return f"Hello, {said['user_name']['content']['name']}!"


@tool(name="test_sampling")
async def sampling(prompt: str, context: ToolContext) -> str:
    """Ask the host's model."""
    said = await context.request("mcp.input", answer=completion(prompt))
    return f"LLM response: {said['answer']['content']['text']}"


@tool(name="test_input_required_result_sampling")
async def input_required_sampling(context: ToolContext) -> str:
    """Ask the host's model."""
    said = await context.request("mcp.input", capital_question=completion("What is the capital of France?"))
    return str(said["capital_question"]["content"]["text"])


@tool(name="test_input_required_result_capabilities")
async def input_required_capabilities(context: ToolContext) -> str:
    """Ask the host's model."""
    return str(await context.request("mcp.input", greeting=completion("Generate a greeting")))


@tool(name="test_missing_capability")
async def missing_capability(context: ToolContext) -> str:
    """Ask the host's model, where there is none."""
    return str(await context.request("mcp.input", greeting=completion("Generate a greeting")))


@tool(name="test_input_required_result_list_roots")
async def input_required_list_roots(context: ToolContext) -> str:
    """Ask for the roots."""
    return str(await context.request("mcp.input", client_roots=ROOTS))


@tool(name="test_input_required_result_multiple_inputs")
async def input_required_multiple_inputs(context: ToolContext) -> str:
    """Ask for all of them together."""
    said = await context.request(
        "mcp.input",
        user_name=form("What is your name?", name={"type": "string"}),
        greeting=completion("Generate a greeting"),
        client_roots=ROOTS,
    )
    return str(said)


@tool(name="test_reconnection")
async def reconnection() -> str:
    """Take a moment."""
    await asyncio.sleep(0.1)
    return "Reconnection test completed"


ADDRESS = {"street": {"type": "string"}, "city": {"type": "string"}}
json_schema_2020_12_tool = tool(
    name="json_schema_2020_12_tool",
    description="A schema with keywords that type hints do not make.",
    args={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": ADDRESS}},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    execute=lambda _args, _context: "ok",
)
