"""Our values as the Claude Agent SDK has them, and what Claude Code makes of them.

A result is content alone, as structured content would replace the text.
A result with the flag of an error is shown as one text: without its pictures, without white space at its ends, and
with its middle cut out beyond ten thousand characters. So a failure that has more to show goes without the flag, and
its first line says how the call ended.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from urllib.parse import quote

from mcp import types

from toolcell.client import FileData, ImageData, Outcome, ResourceLink, Text, ToolInfo
from toolcell.client.outcome import ending_of, failure_text, notes_text

ERROR_CHARACTERS_MAX = 10_000
"""Of a result with the flag of an error; Claude Code cuts what is longer."""
CUT_CHARACTERS = 50_000
"""Where Claude Code puts a result into a file, unless the tool says more."""
AROUND_BYTES = 2_000
"""For what stands around an output: how the call ended, and the note that it was cut."""
OUTPUT_BYTES = CUT_CHARACTERS - AROUND_BYTES
META = {
    # Else a tool hides behind a search as long as there are built-in ones.
    "anthropic/alwaysLoad": True,
    # For a session that was connected without our limits: the daemon's own and its note are over the agent's.
    "anthropic/maxResultSizeChars": 4 * CUT_CHARACTERS,
}
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What the model can look at; one of another kind would have the whole conversation refused."""


def tool_of(info: ToolInfo) -> types.Tool:
    """A tool as the agent is to list it."""
    return types.Tool(
        name=info.name,
        title=info.title or None,
        description=info.description,
        # A schema without properties is read as the properties themselves.
        input_schema={"type": "object", "properties": {}, **info.input_schema},
        # What the author has not declared is left out: a hint that is missing means the worst, one that is there is a claim.
        annotations=types.ToolAnnotations(
            read_only_hint=info.read_only or None,  # such calls of one message run side by side
            destructive_hint=info.destructive,
            idempotent_hint=info.idempotent or None,
            open_world_hint=info.network,
        ),
        _meta=META,
    )


def result_of(outcome: Outcome) -> types.CallToolResult:
    """How a call ended, as the model is to read it."""
    notes = [_text(noted)] if (noted := notes_text(outcome)) else []
    if outcome.ok:
        return types.CallToolResult(content=[*_blocks(outcome), *notes])
    text = outcome.text
    pictures = any(isinstance(block, ImageData | FileData) for block in outcome.content)
    if not pictures and len(text) <= ERROR_CHARACTERS_MAX:
        return types.CallToolResult(content=[_text(text)], is_error=True)
    texts = filter(None, (f"The tool failed: {ending_of(outcome)}.", failure_text(outcome)))
    return types.CallToolResult(content=[*map(_text, texts), *_blocks(outcome), *notes])


def _blocks(outcome: Outcome) -> Iterator[types.ContentBlock]:
    for block in outcome.content:
        match block:
            case Text(text):
                yield _text(text)
            case ImageData(data, mime_type) if mime_type in PICTURES:
                yield types.ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type)
            case ImageData():
                yield _text(str(block))
            case FileData(data, mime_type, name):
                # Claude Code keeps it as a file and tells the model where; the name is here.
                yield _text(str(block))
                resource = types.BlobResourceContents(
                    uri=f"attachment:///{quote(name, safe='')}",
                    mime_type=mime_type,
                    blob=base64.b64encode(data).decode(),
                )
                yield types.EmbeddedResource(resource=resource)
            case ResourceLink(uri, name, mime_type):
                yield types.ResourceLink(uri=uri, name=name or uri, mime_type=mime_type)


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)
