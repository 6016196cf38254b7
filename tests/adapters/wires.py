"""Turns of a model as two more agents' wires have them: OpenAI's responses for Codex, Google's contents for Gemini.

`openai.serving` answers requests for these with the events that are made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .script import Turn, Use

__all__ = ["google_event", "google_result", "responses_events", "responses_result"]


def responses_events(turn: Turn) -> Iterator[dict[str, Any]]:
    """A turn as a stream of responses; a tool of a server is `SERVER.NAME`, as Codex offers it in a namespace."""
    yield {"type": "response.created", "response": {"id": "response_1"}}
    if turn.text:
        text = {"type": "output_text", "text": turn.text}
        yield _item({"type": "message", "role": "assistant", "id": "message_1", "content": [text]})
    for use in turn.uses:
        namespace, _, name = use.tool.rpartition(".")
        call = {"type": "function_call", "id": f"item_{use.id}", "call_id": use.id, "name": name}
        yield _item({**call, "namespace": namespace, "arguments": json.dumps(use.arguments)})
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    yield {"type": "response.completed", "response": {"id": "response_1", "usage": usage}}


def _item(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def responses_result(request: Mapping[str, Any], use: Use) -> str:
    """What a request of Codex says of a use: its texts, without the one that Codex puts before them."""
    (found,) = (
        item["output"]
        for item in request["input"]
        if item["type"] == "function_call_output" and item["call_id"] == use.id
    )
    first, *texts = (part["text"] for part in found)
    assert first.startswith("Wall time: ")
    return "".join(texts)


def google_event(turn: Turn) -> dict[str, Any]:
    """A turn as one piece of Google's content."""
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    parts += [{"functionCall": {"name": use.tool, "args": dict(use.arguments)}} for use in turn.uses]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


def google_result(request: Mapping[str, Any], use: Use) -> str:
    """What a request of Gemini CLI says of the newest use of a tool, without the marks that it puts around each text."""
    *_, found = (
        part["functionResponse"]["response"]["output"]
        for content in request["contents"]
        for part in content["parts"]
        if part.get("functionResponse", {}).get("name") == use.tool
    )
    return str(found).replace("<untrusted_context>\n", "").replace("\n</untrusted_context>", "")
