"""Our values as MCP has them, and a host's answer as ours.

A tool with an output schema has structured content beside its text, except for the agents in `host.limits`: one of them
shows it instead of the text, one after the text and one not at all, so a model would read something else in each.
A client refuses a result of such a tool without structured content, or with a value that does not fit, unless it is an
error. So a result that cannot be sent as data is one for the client, with its text after a line that says why.

What went wrong is a result with `isError`, as a model should read it; a protocol error would reach the host's log only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import pydantic
from mcp import types

from toolcell import ToolError
from toolcell.client import (
    Answer,
    Ask,
    Block,
    FileData,
    ImageData,
    Outcome,
    Question,
    ResourceLink,
    Text,
    ToolInfo,
    Update,
)
from toolcell.client.outcome import failure_text, notes_text

ANSWER = "allow"
METADATA_KEY = "toolcell/metadata"
"""In the `_meta` of a result: what the tool has set with `context.metadata`, for programs; no host shows it."""
LINE_CHARACTERS_MAX = 1000
"""As of the message of progress."""
NOT_STRUCTURED = "The tool ran and returned. Its value cannot be sent as data: {}. What it returned as text:"
"""Ahead of the text of a result that a client with the tool's output schema would refuse."""
UNKNOWN_REASON = "it is longer than the tool's output_bytes or output_lines, too large to be checked, or was changed by a hook"
REQUESTS_MAX: Final = 8
"""Of one `mcp.input`; a person answers them one after the other."""
NAME_CHARACTERS_MAX: Final = 64
FIELDS: Final = ("string", "number", "integer", "boolean", "array")
"""What a form of the protocol can have; objects in it cannot be shown."""
RESULTS: Final[Mapping[str, type[types.ElicitResult | types.CreateMessageResult | types.ListRootsResult]]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}
"""What a host answers to each request that a tool can make."""
CAPABILITIES: Final[Mapping[str, types.ClientCapabilities]] = {
    "elicitation/create": types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    "sampling/createMessage": types.ClientCapabilities(sampling=types.SamplingCapability()),
    "roots/list": types.ClientCapabilities(roots=types.RootsCapability()),
}
"""What a host must have declared for it."""


def result_of(outcome: Outcome, tool: ToolInfo | None = None, misfit: str = "") -> dict[str, Any]:
    """How a call ended, as the protocol writes it: its content, after the message where it did not end well.

    Args:
        tool: The tool, if the host was given its output schema; default: there is none.
        misfit: Why the value does not fit that schema, as the tool's log says; default: it does, or nothing is said.
    """
    content = [block_of(block) for block in outcome.content]
    ok = outcome.ok
    if not ok and (told := failure_text(outcome)):
        content.insert(0, text_block(told))
    if outcome.notes:
        content.append(text_block(notes_text(outcome)))
    result: dict[str, Any] = {"content": content, "isError": not ok}
    if outcome.metadata:
        result["_meta"] = {METADATA_KEY: dict(outcome.metadata)}
    if tool is None or tool.output_schema is None or not ok:
        return result
    if outcome.structured:
        result["structuredContent"] = tool.structured_value(outcome.details)
    else:
        content.insert(0, text_block(NOT_STRUCTURED.format(misfit or UNKNOWN_REASON)))
        result["isError"] = True
    return result


def line_of(update: Update) -> str:
    """What a host shows of a partial result while the tool runs: the last line of its text; "" if it has none."""
    return update.last_line[:LINE_CHARACTERS_MAX]


def failure(message: str) -> dict[str, Any]:
    """A call that there is no outcome for."""
    return {"content": [text_block(message)], "isError": True}


def text_block(text: str) -> dict[str, Any]:
    """A text as MCP has it."""
    return {"type": "text", "text": text}


def block_of(block: Block) -> dict[str, Any]:
    """A block as MCP has it."""
    match block:
        case Text(text):
            return text_block(text)
        case ResourceLink(uri, name, mime_type):
            typed = {} if mime_type is None else {"mimeType": mime_type}
            return {"type": "resource_link", "uri": uri, "name": name or uri, **typed}
        case ImageData(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}
        case FileData(data, mime_type, name):
            encoded = base64.b64encode(data).decode()
            if mime_type.startswith("audio/"):
                return {"type": "audio", "data": encoded, "mimeType": mime_type}
            uri = f"attachment:///{quote(name, safe='')}"
            return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "blob": encoded}}


def question_of(ask: Ask) -> types.ElicitRequest:
    """A tool's question as a form; all of it is shown, as what a person does not see must not be allowed."""
    lines = [f"{ask.call.tool}: {ask.question}", *(f"  {pattern}" for pattern in ask.patterns)]
    choices = ["once", "always", "no"]
    if ask.always:
        lines.append(f"  always: {', '.join(ask.always)}")
    schema = {
        "type": "object",
        "properties": {
            ANSWER: {"type": "string", "title": "Allow?", "enum": choices, "default": "once"}
        },  # the default is what Enter sends
        "required": [ANSWER],
    }
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)
    )


def answer_of(said: object) -> Answer:
    """What a person chose; whatever is not a clear yes is a no."""
    if not isinstance(said, types.ElicitResult) or said.action != "accept":
        return False
    choice = (said.content or {}).get(ANSWER)
    return "always" if choice == "always" else choice == "once"


def form_of(question: Question) -> types.ElicitRequest:
    """A tool's question for a value as a form."""
    message = f"{question.call.tool}: {question.message}"
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=question.schema)
    )


def value_of(said: object) -> object:
    """What a person answered to a form; None if it was dismissed."""
    if not isinstance(said, types.ElicitResult) or said.action != "accept":
        return None
    return (said.content or {}).get("value")


def requests_of(tool: str, requests: Mapping[str, object]) -> dict[str, types.InputRequest]:
    """Read requests for the host, by the names that a tool gives them: each an object with `method` and `params`.

    Raises ToolError, with what is wrong: they come from the tool's process.
    """
    if not 1 <= len(requests) <= REQUESTS_MAX:
        raise ToolError(f"mcp.input takes 1 to {REQUESTS_MAX} requests, got {len(requests)}")
    return {name: _request_of(tool, name, request) for name, request in requests.items()}


def _request_of(tool: str, name: str, request: object) -> types.InputRequest:
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise ToolError(f"the name of a request has 1 to {NAME_CHARACTERS_MAX} printable characters")
    method = cast("dict[str, object]", request).get("method") if isinstance(request, dict) else None
    if not isinstance(method, str) or method not in RESULTS:
        raise ToolError(f"{name} needs a method: {', '.join(RESULTS)}")
    try:
        json.dumps(request, ensure_ascii=False).encode()
        if method == "elicitation/create":
            form = types.ElicitRequest.model_validate(request, by_name=False)
            return types.ElicitRequest(params=_form_of(tool, name, form.params))
        if method == "sampling/createMessage":
            sampling = types.CreateMessageRequest.model_validate(request, by_name=False)
            if sampling.params.tools is not None or sampling.params.tool_choice is not None:
                raise ToolError(f"{name}: the host's model is given no tools here")
            # Nothing else of the conversation, and no task: the answer is waited for.
            plain = sampling.params.model_copy(update={"include_context": None, "task": None})
            return types.CreateMessageRequest(params=plain)
        return types.ListRootsRequest()
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolError(f"{name} is no {method}: {where}: {first['msg']}") from error
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} has half a character, which UTF-8 has not") from error


def _form_of(
    tool: str, name: str, form: types.ElicitRequestFormParams | types.ElicitRequestURLParams
) -> types.ElicitRequestFormParams:
    """A tool's own form, under the name of the tool; an address to open is none."""
    fields = (
        form.requested_schema.get("properties") if isinstance(form, types.ElicitRequestFormParams) else None
    )
    if not isinstance(form, types.ElicitRequestFormParams) or not isinstance(fields, dict):
        raise ToolError(f"{name}: a form has a requestedSchema with properties")
    for field, schema in cast("dict[str, object]", fields).items():
        kind = cast("dict[str, object]", schema).get("type") if isinstance(schema, dict) else None
        if kind not in FIELDS:
            raise ToolError(f"{name}: the type of {field!r:.80} should be one of {', '.join(FIELDS)}")
    return types.ElicitRequestFormParams(
        message=f"{tool}: {form.message}", requested_schema=form.requested_schema
    )
