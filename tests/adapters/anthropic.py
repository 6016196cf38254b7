"""A model behind Anthropic's Messages wire, on loopback, that says what a `Script` has prepared.

    async with messages() as model:
        model.script.uses(Use("mcp__toolcell__kit_echo", {"text": "hello"}))
        environment = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}

It streams where it is asked to, as the agents do, and gives the whole message otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.adapters.script import Script, Turn

__all__ = ["Model", "messages"]

STOP_SECONDS_MAX = 5
"""What an answer that is being written may take once the server is to end."""


@dataclass
class Model:
    """The server, as a test sees it."""

    url: str
    script: Script = field(default_factory=Script)
    message_ids: dict[str, str] = field(default_factory=dict[str, str])
    """Which message asked for a use of a tool, by the id of the use."""
    keys: set[str] = field(default_factory=set[str])
    """The API keys that were sent."""
    unknown: list[str] = field(default_factory=list[str])
    """What was asked for and is not here."""

    def result(self, use_id: str) -> dict[str, Any] | None:
        """The block in which the agent gave the model the result of a use, from the newest request that has it."""
        for request in reversed(self.script.requests):
            for message in request["messages"]:
                for block in message["content"] if isinstance(message["content"], list) else ():
                    if block["type"] == "tool_result" and block["tool_use_id"] == use_id:
                        found: dict[str, Any] = block
                        return found
        return None

    def offered(self) -> dict[str, dict[str, Any]]:
        """The tools of the newest request, by name."""
        return {tool["name"]: tool for tool in self.script.requests[-1]["tools"]}


@asynccontextmanager
async def messages() -> AsyncGenerator[Model]:
    """A model on a port of its own; ended, and with it every connection, on the way out."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        model = Model(f"http://127.0.0.1:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            _application(model),
            log_config=None,
            lifespan="off",
            access_log=False,
            headers=[("connection", "close")],  # an agent of several tests would leave one open after each
            timeout_graceful_shutdown=STOP_SECONDS_MAX,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve([listener]), name="model")
        try:
            yield model
        finally:
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """One that leaves signals to the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _application(model: Model) -> Starlette:
    numbers = itertools.count(1)

    async def answer(request: Request) -> Response:
        asked = await request.json()
        model.keys.add(request.headers.get("x-api-key", ""))
        turn = model.script.next(asked) if asked.get("tools") else Turn(text="a title")
        message = _message(turn, f"msg_{next(numbers):06}", asked["model"])
        model.message_ids.update((use.id, message["id"]) for use in turn.uses)
        if not asked.get("stream"):
            return JSONResponse(message)
        return StreamingResponse(_stream(message), media_type="text/event-stream")

    async def count(request: Request) -> Response:
        return JSONResponse({"input_tokens": len(await request.body()) // 4})

    async def unknown(request: Request) -> Response:
        model.unknown.append(f"{request.method} {request.url.path}")
        error = {"type": "not_found_error", "message": "not here"}
        return JSONResponse({"type": "error", "error": error}, status_code=404)

    return Starlette(
        routes=[
            Route("/v1/messages", answer, methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/{path:path}", unknown, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
        ]
    )


def _message(turn: Turn, message_id: str, model: str) -> dict[str, Any]:
    text: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    uses = [
        {"type": "tool_use", "id": use.id, "name": use.tool, "input": dict(use.arguments)}
        for use in turn.uses
    ]
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": text + uses,
        "stop_reason": "tool_use" if uses else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def _stream(message: dict[str, Any]) -> Iterator[str]:
    """A message as the wire streams it: its head, each block in pieces, its end."""
    head: dict[str, Any] = {**message, "content": [], "stop_reason": None}
    yield _event("message_start", message=head)
    for index, block in enumerate(message["content"]):
        empty: dict[str, Any]
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_start", index=index, content_block=empty)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event(
        "message_delta",
        delta={"stop_reason": message["stop_reason"], "stop_sequence": None},
        usage={"output_tokens": 10},
    )
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
