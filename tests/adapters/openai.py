"""A model behind OpenAI's chat completions, on loopback: it says what its `Script` has, and keeps what it was asked.

    async with serving() as model:
        model.script.uses(Use("kit_echo", {"text": "a"}))
        agent.start(base_url=model.url, …)

One request for each connection, and no library: the wire is a head, a body and lines that begin with `data:`.
Two agents have other wires (`wires.py`), and get them from the same server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .script import Script, Turn
from .wires import google_event, responses_events

__all__ = ["MODEL", "Model", "offered", "results", "serving"]

MODEL = "scripted"
REQUEST_BYTES_MAX = 64 * 2**20
"""An agent sends the whole conversation with every request, pictures included."""
PIECES = 3
"""In so many pieces come a text and a call's arguments, as a real model's do."""


@dataclass
class Model:
    """The server's other side."""

    url: str
    """The base that an agent gets; `/chat/completions` comes after it."""
    script: Script = field(default_factory=Script)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, unless a test wants the model to think for a while; the request is in the script's by then."""
    strangers: list[str] = field(default_factory=list[str])
    """Requests that are none for a model, such as `POST /v1/telemetry`; each was answered with 404."""


def offered(request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tools of a request, by name: `description` and `parameters`."""
    return {tool["function"]["name"]: tool["function"] for tool in request["tools"]}


def results(request: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the tools' results in a request, by the ids of their calls."""
    found: dict[str, str] = {}
    for message in request["messages"]:
        if message["role"] == "tool":
            content = message["content"]
            texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
            found[message["tool_call_id"]] = "".join(texts)
    return found


@asynccontextmanager
async def serving(script: Script | None = None) -> AsyncGenerator[Model]:
    """A model that listens on a port of its own; it closes all connections when the block ends."""
    connections: set[asyncio.Task[None]] = set()
    model = Model("", script or Script())
    model.gate.set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            if server.is_serving():
                await _serve(model, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the agent hung up, or the test is over; a stream's task that is cancelled would complain
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20)
    try:
        host, port = server.sockets[0].getsockname()
        model.url = f"http://{host}:{port}/v1"
        yield model
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await server.wait_closed()


async def _serve(model: Model, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    size = int(headers.get("content-length", "0"))
    assert size <= REQUEST_BYTES_MAX, f"a request of {size} bytes"
    body = await _chunks(reader) if "transfer-encoding" in headers else await reader.readexactly(size)
    path = path.partition("?")[0]
    if method == "GET" and path.endswith("/models"):
        found = {"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}
        _answer(
            writer, "200 OK", "application/json", json.dumps({"object": "list", "data": [found]}).encode()
        )
    elif method == "POST" and path.endswith("/chat/completions"):
        request = json.loads(body)
        turn = model.script.next(request) if request.get("tools") else Turn(text="word")
        await model.gate.wait()
        if request.get("stream"):
            _answer(writer, "200 OK", "text/event-stream", None)
            for event in _events(request, turn):
                writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                await writer.drain()
            writer.write(b"data: [DONE]\n\n")
        else:
            _answer(writer, "200 OK", "application/json", json.dumps(_whole(request, turn)).encode())
    elif method == "POST" and path.endswith(("/responses", ":streamGenerateContent")):
        request = json.loads(body)
        turn = model.script.next(request) if request.get("tools") else Turn(text="word")
        _answer(writer, "200 OK", "text/event-stream", None)
        for event in responses_events(turn) if path.endswith("/responses") else [google_event(turn)]:
            writer.write(b"data: " + json.dumps(event).encode() + b"\r\n\r\n")
    else:
        model.strangers.append(f"{method} {path}")
        _answer(
            writer, "404 Not Found", "application/json", b'{"error": {"message": "there is only a model"}}'
        )
    await writer.drain()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body that comes in chunks, each with its size before it."""
    body = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        assert len(body) + size <= REQUEST_BYTES_MAX
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return bytes(body)


def _answer(writer: asyncio.StreamWriter, status: str, kind: str, body: bytes | None) -> None:
    """The head of an answer, and its body; without one, what follows is the body until the connection ends."""
    length = "" if body is None else f"Content-Length: {len(body)}\r\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{length}\r\n"
    writer.write(head.encode() + (body or b""))


def _base(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": request.get("model", MODEL)}


_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _whole(request: Mapping[str, Any], turn: Turn) -> dict[str, Any]:
    """A turn in one answer."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.uses:
        message["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {"name": use.tool, "arguments": json.dumps(use.arguments)},
            }
            for use in turn.uses
        ]
    choice = {"index": 0, "message": message, "finish_reason": _reason(turn)}
    return {**_base(request, "chat.completion"), "choices": [choice], "usage": _USAGE}


def _events(request: Mapping[str, Any], turn: Turn) -> Iterator[dict[str, Any]]:
    """A turn in pieces: its text, its calls, why it ended, and what it cost."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**_base(request, "chat.completion.chunk"), "choices": [choice]}

    yield chunk({"role": "assistant", "content": "" if turn.text else None})
    for piece in _pieces(turn.text):
        yield chunk({"content": piece})
    for index, use in enumerate(turn.uses):
        function = {"name": use.tool, "arguments": ""}
        yield chunk(
            {"tool_calls": [{"index": index, "id": use.id, "type": "function", "function": function}]}
        )
        for piece in _pieces(json.dumps(use.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _reason(turn))
    options: dict[str, Any] = request.get("stream_options") or {}
    if options.get("include_usage"):
        yield {**_base(request, "chat.completion.chunk"), "choices": [], "usage": _USAGE}


def _reason(turn: Turn) -> str:
    return "tool_calls" if turn.uses else "stop"


def _pieces(text: str) -> Iterator[str]:
    size = max(1, -(-len(text) // PIECES))
    return (text[start : start + size] for start in range(0, len(text), size))
