"""A daemon of a hundred lines that says what a test tells it to: a real gRPC server on a real socket, without tools.

It is a fake because the tests here are about the client alone: what it sends, and what it makes of what comes.
A script is a coroutine that speaks on one Attach stream; the streams of a test take one script each, in order.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # they lie beside it
    error_details_pb2,
    status_pb2,
)

from toolcell_proto.v1 import toolcell_pb2 as pb

TOKEN = "the-token-of-agents"

_Context: TypeAlias = "grpc.aio.ServicerContext[pb.AttachRequest, pb.AttachResponse]"


def status(
    code: grpc.StatusCode,
    reason: str,
    text: str,
    *,
    fields: Sequence[tuple[str, str]] = (),
    retry_seconds: int = 0,
) -> status_pb2.Status:
    """A refusal as the contract has it."""
    details: list[message.Message] = [error_details_pb2.ErrorInfo(domain="toolcell", reason=reason)]
    if fields:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=field, description=why) for field, why in fields
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if retry_seconds:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=retry_seconds)))
    refusal = status_pb2.Status(code=code.value[0], message=text)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        refusal.details.append(packed)
    return refusal


def body(text: str, details: object = None) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], "details": details}).encode()


def ok(call_id: str, text: str) -> pb.Event:
    outcome = pb.Outcome(kind=pb.OUTCOME_KIND_OK, body=body(text), ran=True)
    return pb.Event(call_id=call_id, outcome=outcome)


def aborted(call_id: str, message: str = "stopped") -> pb.Event:
    outcome = pb.Outcome(
        kind=pb.OUTCOME_KIND_ABORTED,
        cause="abort",
        message=message,
        ran=True,
        stopped=pb.STOPPED_SETTLED,
        side_effects_possible=True,
    )
    return pb.Event(call_id=call_id, outcome=outcome)


class Line:
    """One Attach stream, as the daemon holds it."""

    def __init__(self, daemon: ScriptedDaemon, context: _Context) -> None:
        self._daemon = daemon
        self._context = context
        self.metadata = dict(context.invocation_metadata() or ())

    async def hear(self) -> pb.AttachRequest | None:
        """The next message that is more than an acknowledgement; None at the end."""
        while True:
            heard = cast("object", await self._context.read())  # or EOF, which its type forgets
            if not isinstance(heard, pb.AttachRequest):
                return None
            assert heard.ByteSize() <= 64 * 1024
            self._daemon.acknowledged.append(heard.acknowledged)
            sort = heard.WhichOneof("message")
            self._daemon.heard.append(sort or "acknowledged")
            if sort is not None:
                return heard

    async def hear_call(self) -> pb.Call:
        heard = await self.hear()
        assert heard is not None
        assert heard.WhichOneof("message") == "call", heard
        return heard.call

    async def hear_arguments(self, call: pb.Call) -> bytes:
        """All parts of a call's arguments."""
        parts = [call.arguments]
        last = call.arguments_bytes == 0
        while not last:
            heard = await self.hear()
            assert heard is not None
            parts.append(heard.chunk.data)
            last = heard.chunk.last
        return b"".join(parts)

    async def say(self, *events: pb.Event) -> None:
        """Number events and send them in one message."""
        for event in events:
            if event.WhichOneof("event") != "welcome":
                self._daemon.number += 1
                event.number = self._daemon.number
        await self._context.write(pb.AttachResponse(events=events))

    async def say_again(self, event: pb.Event) -> None:
        """Send an event under the number that it has."""
        await self._context.write(pb.AttachResponse(events=[event]))

    async def welcome(
        self, *, resumed: bool = False, calls: Sequence[pb.CallInfo] = (), fence: int = 0
    ) -> pb.Open:
        """Hear Open, say Welcome and an empty catalog; with a fence as the node of a cluster."""
        heard = await self.hear()
        assert heard is not None
        assert heard.HasField("open"), heard
        welcome = pb.Welcome(
            session_id=self._daemon.session_id,
            resume_token="secret",
            resumed=resumed,
            protocol=1,
            generation=self._daemon.generation,
            calls=calls,
            fence=fence,
            lease_seconds=30 if fence else 0,
            node=f"n{fence}" if fence else "",
        )
        await self.say(pb.Event(welcome=welcome), self.catalog())
        return heard.open

    def catalog(self, *, answers: bool = False) -> pb.Event:
        tool = pb.Tool(
            name="echo",
            description=self._daemon.description,
            input_schema=b'{"type":"object"}',
            scope="local",
        )
        part = pb.CatalogPart(generation=self._daemon.generation, tools=[tool], last=True, answers=answers)
        return pb.Event(catalog=part)

    async def refuse(self, refusal: status_pb2.Status) -> None:
        """End the stream with a refusal."""
        code = next(code for code in grpc.StatusCode if code.value[0] == refusal.code)
        details = (("grpc-status-details-bin", refusal.SerializeToString()),)
        await self._context.abort(code, refusal.message, details)

    async def drop(self) -> None:
        """End the stream as if the line had been cut."""
        await self._context.abort(grpc.StatusCode.UNAVAILABLE, "cut")


Script: TypeAlias = Callable[[Line], Awaitable[None]]


async def echo(line: Line) -> None:
    """Answer every call with its arguments; an abort ends the oldest of those called `wait`."""
    await line.welcome()
    while (heard := await line.hear()) is not None:
        match heard.WhichOneof("message"):
            case "call" if heard.call.tool == "echo":
                await line.say(ok(heard.call.call_id, (await line.hear_arguments(heard.call)).decode()))
            case "abort":
                await line.say(aborted(heard.abort.call_id, heard.abort.reason))
            case "refresh":
                await line.say(line.catalog(answers=True))
            case "close":
                return
            case _:
                pass


async def until_closed(line: Line) -> None:
    """Listen until the client closes the session or is gone."""
    while (heard := await line.hear()) is not None and not heard.HasField("close"):
        pass


class ScriptedDaemon:
    """The daemon; what it heard and was told is in its attributes."""

    def __init__(self, socket: str, scripts: Sequence[Script]) -> None:
        self.socket = socket
        self.session_id = "s-1"
        self.generation = 1
        self.description = "Says it again."
        self.number = 0
        self.acknowledged: list[int] = []
        self.heard: list[str] = []
        self.outputs = {"o-1": b"0123456789"}
        self.parts_sent = 0
        self.errors: list[BaseException] = []
        self._scripts = list(scripts)

    async def attach(self, _: object, context: _Context) -> None:
        """The RPC Attach: hand the stream to the next script."""
        line = Line(self, context)
        if line.metadata.get("authorization") != f"Bearer {TOKEN}":
            await line.refuse(status(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "no such token"))
        script = self._scripts.pop(0)
        try:
            await script(line)
        except AssertionError as error:
            self.errors.append(error)
            raise

    async def read_output(
        self,
        request: pb.ReadOutputRequest,
        context: grpc.aio.ServicerContext[pb.ReadOutputRequest, pb.ReadOutputResponse],
    ) -> AsyncIterator[pb.ReadOutputResponse]:
        """The RPC ReadOutput, three bytes at a time."""
        whole = self.outputs.get(request.output_id)
        if whole is None or (request.session_id, request.resume_token) != (self.session_id, "secret"):
            refusal = status(grpc.StatusCode.NOT_FOUND, "UNKNOWN_OUTPUT", f"no output {request.output_id}")
            details = (("grpc-status-details-bin", refusal.SerializeToString()),)
            await context.abort(grpc.StatusCode.NOT_FOUND, refusal.message, details)
        else:
            for place in range(request.start_bytes, request.start_bytes + request.length_bytes, 3):
                end = min(place + 3, request.start_bytes + request.length_bytes)
                self.parts_sent += 1
                yield pb.ReadOutputResponse(data=whole[place:end])


@asynccontextmanager
async def daemon(directory: Path, *scripts: Script) -> AsyncGenerator[ScriptedDaemon]:
    """A scripted daemon on a socket below `directory`; what its scripts asserted in vain fails the test."""
    directory.chmod(0o700)
    socket = str(directory / "daemon.sock")
    directory.joinpath("agent.token").write_text(f"{TOKEN}\n")
    scripted = ScriptedDaemon(socket, scripts)
    server = grpc.aio.server()
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Attach": grpc.stream_stream_rpc_method_handler(
            scripted.attach,  # pyright: ignore[reportArgumentType]  # typed for threads
            request_deserializer=pb.AttachRequest.FromString,
            response_serializer=pb.AttachResponse.SerializeToString,
        ),
        "ReadOutput": grpc.unary_stream_rpc_method_handler(
            scripted.read_output,  # pyright: ignore[reportArgumentType]  # typed for threads
            request_deserializer=pb.ReadOutputRequest.FromString,
            response_serializer=pb.ReadOutputResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("toolcell.v1.ToolCell", methods),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(None)
        if os.path.exists(socket):
            os.unlink(socket)
    if scripted.errors:
        raise scripted.errors[0]
