"""The routes that change something: opening and closing a session, actions, and calls.

Each action is one RPC of the daemon, which writes it into the audit. A call is one too; it is in the records as one of
the agent "page".
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from google.protobuf import json_format
from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolcell.adapters.gateway.application import JsonAnswer
from toolcell.adapters.gateway.feed import message_of
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Failure
from toolcell.cli._ui.json_output import record
from toolcell.cli.page.access import OPEN, OPERATOR, SESSION_SECONDS, Access
from toolcell.cli.page.reading import session_of
from toolcell.client import Refused, Unavailable
from toolcell.client._grpc.methods import Method, OperatorMethods, ToolCellMethods
from toolcell.client._transport.messages import read_event, read_outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

AGENT: Final = "page"
"""What the records call the program of these calls."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator does: the RPC, and the fields of its request that the page may say."""

    method: Method[Any, Any]
    fields: frozenset[str]


ACTIONS: Final = {
    "abort": Action(ToolCellMethods.AbortCall, frozenset({"call_id", "reason"})),
    "abort-calls": Action(OperatorMethods.AbortCalls, frozenset({"tool", "session_id", "all", "reason"})),
    "disable": Action(OperatorMethods.DisableTool, frozenset({"tool", "reason", "directory"})),
    "enable": Action(OperatorMethods.EnableTool, frozenset({"tool"})),
    "quarantine": Action(OperatorMethods.QuarantineTool, frozenset({"tool", "reason", "directory"})),
    "release": Action(OperatorMethods.Release, frozenset({"tool"})),
    "restart": Action(OperatorMethods.RestartWorkers, frozenset({"tool"})),
    "reload": Action(OperatorMethods.Reload, frozenset()),
    "drain": Action(OperatorMethods.Drain, frozenset({"reason", "off"})),
    "log-level": Action(OperatorMethods.SetLogLevel, frozenset({"level", "seconds"})),
}
"""By the last part of their path. Trust is not among them: what it grants is shown and granted by `toolcell trust`."""


class _Link(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    link: Annotated[str, Field(max_length=256)]


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: dict[str, JsonValue] = {}
    directory: Annotated[str, Field(max_length=4096)] = ""


class _Fault(Exception):
    def __init__(self, status: int, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.answer = JsonAnswer({"error": {"reason": reason, "message": message, "remedy": remedy}}, status)


def add_acting(app: FastAPI, context: CommandContext, access: Access) -> None:
    """Add the routes to an application."""
    _handle_faults(app)
    _add_session(app, access)

    @app.post(f"{OPERATOR}actions/{{name}}")
    async def act(name: str, values: dict[str, JsonValue]) -> Response:
        """Do something: see `ACTIONS`."""
        if (action := ACTIONS.get(name)) is None:
            raise _Fault(
                404, "no_route", f"There is no action {name!r}.", f"There are: {', '.join(ACTIONS)}."
            )
        request = _request(action, values)
        async with operator(context) as client:
            if action.method is OperatorMethods.Drain:  # its stream lasts until the last call has ended
                async with aclosing(_closable(client.watch(action.method, request))) as answers:
                    return JsonAnswer(record(await anext(answers)))
            return JsonAnswer(record(await client.ask(action.method, request)))

    @app.post(f"{OPERATOR}call")
    async def call(wanted: _Call) -> Response:
        """Call a tool and follow it, as server-sent events; closing the connection aborts it."""
        request = pb.CallToolRequest(directory=wanted.directory or os.getcwd(), agent=AGENT)
        request.call.call_id = f"page-{secrets.token_hex(12)}"
        request.call.tool = wanted.tool
        request.call.arguments = json.dumps(wanted.arguments).encode()
        return StreamingResponse(_followed(context, request), media_type="text/event-stream")


def _add_session(app: FastAPI, access: Access) -> None:
    @app.post(OPEN)
    async def open_session(wanted: _Link) -> Response:
        """Open a session with the secret of a link, which is good once."""
        opened = access.open(wanted.link)
        if opened is None:
            raise _Fault(
                401,
                "used_link",
                "This link was used before, or is older than ten minutes.",
                "Make a new one: toolcell ui",
            )
        value, session = opened
        answer = JsonAnswer({"token": session.forgery})
        answer.set_cookie(
            access.cookie,
            value,
            max_age=int(SESSION_SECONDS),
            path=OPERATOR,
            httponly=True,
            samesite="strict",
        )
        return answer

    @app.post(f"{OPERATOR}close")
    async def close_session(request: Request) -> Response:
        """End the session."""
        access.close(session_of(request))
        answer = JsonAnswer({})
        answer.delete_cookie(access.cookie, path=OPERATOR, httponly=True, samesite="strict")
        return answer


def _handle_faults(app: FastAPI) -> None:
    @app.exception_handler(_Fault)
    async def fault(_: Request, error: _Fault) -> Response:
        return error.answer

    @app.exception_handler(Failure)
    async def failure(_: Request, error: Failure) -> Response:
        body = {"reason": error.code, "message": error.message, "remedy": error.remedy}
        return JsonAnswer({"error": body}, 503)


def _request(action: Action, values: dict[str, JsonValue]) -> Message:
    """Make the request of an action. Raises _Fault for what it does not have."""
    if unknown := sorted(values.keys() - action.fields):
        allowed = ", ".join(sorted(action.fields)) or "no field"
        raise _Fault(422, "invalid_request", f"{unknown[0][:64]!r} is not known; there is: {allowed}.")
    request: Message = action.method.request()
    try:
        return json_format.ParseDict(values, request)
    except json_format.ParseError as error:
        raise _Fault(422, "invalid_request", str(error)[:400]) from error


async def _closable(answers: Any) -> AsyncGenerator[Message]:
    async for answer in answers:
        yield answer


async def _followed(context: CommandContext, request: pb.CallToolRequest) -> AsyncGenerator[bytes]:
    """Yield what a call tells, and last how it ended."""
    yield _event("accepted", {"call_id": request.call.call_id})
    body, ending = bytearray(), None
    try:
        async with operator(context) as client:
            async for answer in client.watch(client.tools.CallTool, request):
                event = answer.event
                match event.WhichOneof("event"):
                    case "outcome":
                        ending = event.outcome
                        body += ending.body
                    case "chunk" if ending is not None:
                        body += event.chunk.data
                    case _ if (said := read_event(event)) is not None:
                        yield _event("message", message_of(said))
                    case _:
                        pass
    except Refused as error:
        yield _event("ended", {"kind": "refused", "cause": error.reason, "message": error.message})
    except (Unavailable, Failure) as error:
        yield _event("ended", {"kind": "refused", "cause": "unavailable", "message": error.message})
    else:
        if ending is not None:
            yield _event("ended", read_outcome(ending, bytes(body)).to_dict())


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
