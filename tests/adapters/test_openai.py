"""The model that the agents of the tests talk to, without an agent."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from .openai import Model, offered, results, serving
from .script import Turn, Use

pytestmark = pytest.mark.anyio

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "echo", "description": "Say.", "parameters": {}}}
]


async def asked(
    model: Model, method: str, path: str, body: object = None, chunked: bool = False
) -> tuple[str, str]:
    """The head and the body of an answer."""
    port = int(model.url.removesuffix("/v1").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: here\r\n"
        if chunked:
            parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:5], data[5:], b""))
            writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + parts)
        else:
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    return answer.partition("\r\n\r\n")[0], answer.partition("\r\n\r\n")[2]


def events(body: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_a_turn_with_calls_comes_in_pieces_that_make_the_whole() -> None:
    async with serving() as model:
        uses = Use("echo", {"text": "a ü"}), Use("echo", {"text": "b"})
        model.script.turns = [Turn(uses=uses)]
        request: dict[str, Any] = {
            "stream": True,
            "tools": TOOLS,
            "messages": [],
            "stream_options": {"include_usage": True},
        }
        for chunked in (False, True):
            model.script.turns = [Turn(uses=uses)]
            _, body = await asked(model, "POST", "/v1/chat/completions", request, chunked)
            *said, usage = events(body)
            calls = [call for one in said for call in one["choices"][0]["delta"].get("tool_calls", [])]
            for index, use in enumerate(uses):
                mine = [call for call in calls if call["index"] == index]
                assert mine[0]["id"] == use.id
                assert mine[0]["function"]["name"] == "echo"
                assert len(mine) > 2
                assert json.loads("".join(call["function"]["arguments"] for call in mine)) == use.arguments
            assert said[-1]["choices"][0]["finish_reason"] == "tool_calls"
            assert usage["usage"]["total_tokens"] == 15
        assert len(model.script.requests) == 2
        assert offered(model.script.requests[0])["echo"]["description"] == "Say."


async def test_a_text_comes_whole_and_streamed() -> None:
    async with serving() as model:
        model.script.turns = [Turn("all is well"), Turn("all is well", (Use("echo"),))]
        _, body = await asked(model, "POST", "/v1/chat/completions", {"stream": True, "tools": TOOLS})
        said = events(body)
        assert "".join(one["choices"][0]["delta"].get("content") or "" for one in said) == "all is well"
        assert said[-1]["choices"][0]["finish_reason"] == "stop"
        _, body = await asked(model, "POST", "/v1/chat/completions", {"tools": TOOLS})
        message = json.loads(body)["choices"][0]["message"]
        assert message["content"] == "all is well"
        assert message["tool_calls"][0]["function"] == {"name": "echo", "arguments": "{}"}


async def test_a_request_without_tools_takes_no_turn() -> None:
    async with serving() as model:
        model.script.turns = [Turn("kept")]
        _, body = await asked(model, "POST", "/v1/chat/completions", {"messages": []})
        assert json.loads(body)["choices"][0]["message"]["content"] == "word"
        assert [turn.text for turn in model.script.turns] == ["kept"]
        assert model.script.requests == []


async def test_it_lists_itself_and_knows_a_stranger() -> None:
    async with serving() as model:
        _, body = await asked(model, "GET", "/v1/models?limit=2")
        assert [one["id"] for one in json.loads(body)["data"]] == ["scripted"]
        head, _ = await asked(model, "POST", "/v1/telemetry", {})
        assert head.startswith("HTTP/1.1 404")
        assert model.strangers == ["POST /v1/telemetry"]


async def test_it_ends_while_somebody_is_connected() -> None:
    async with serving() as model:
        port = int(model.url.removesuffix("/v1").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n")
        await writer.drain()
    with suppress(ConnectionResetError):  # unread data is dropped
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


def test_results_are_read_as_text_and_as_parts() -> None:
    plain = {"role": "tool", "tool_call_id": "a", "content": "one"}
    parts = {
        "role": "tool",
        "tool_call_id": "b",
        "content": [{"type": "text", "text": "two"}, {"type": "image_url"}],
    }
    assert results({"messages": [{"role": "user", "content": "hi"}, plain, parts]}) == {
        "a": "one",
        "b": "two",
    }
