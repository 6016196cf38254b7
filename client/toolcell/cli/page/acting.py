"""The routes that change something, but for calls: opening and closing a session, and actions.

Each action is one RPC of the daemon, which writes it into the audit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import FastAPI, Request, Response
from google.protobuf import json_format
from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolcell.adapters.gateway.application import JsonAnswer
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.json_output import record
from toolcell.cli.page.access import OPEN, OPERATOR, SESSION_SECONDS, PageAccess
from toolcell.cli.page.faults import PageFault, handle_faults
from toolcell.cli.page.reading import session_of
from toolcell.client._grpc.methods import Method, OperatorMethods, ToolCellMethods


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator does: the RPC, and the fields of its request that the page may say."""

    method: Method[Any, Any]
    fields: frozenset[str]


ACTIONS: Final = {
    "abort": Action(ToolCellMethods.AbortCall, frozenset({"call_id", "reason"})),
    "abort-calls": Action(OperatorMethods.AbortCalls, frozenset({"tool", "session_id", "all", "reason"})),
    "disable": Action(OperatorMethods.DisableTool, frozenset({"tool", "reason", "directory"})),
    "enable": Action(OperatorMethods.EnableTool, frozenset({"tool", "reason"})),
    "quarantine": Action(OperatorMethods.QuarantineTool, frozenset({"tool", "reason", "directory"})),
    "release": Action(OperatorMethods.Release, frozenset({"tool", "reason"})),
    "restart": Action(OperatorMethods.RestartWorkers, frozenset({"tool", "reason"})),
    "reload": Action(OperatorMethods.Reload, frozenset()),
    "drain": Action(OperatorMethods.Drain, frozenset({"reason", "off"})),
    "log-level": Action(OperatorMethods.SetLogLevel, frozenset({"level", "seconds"})),
}
"""By the last part of their path. Trust is not among them: what it grants is shown and granted by `toolcell trust`."""


class _Link(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    link: Annotated[str, Field(max_length=256)]


def add_acting(app: FastAPI, context: CommandContext, access: PageAccess) -> None:
    """Add the routes to an application."""
    handle_faults(app)
    _add_session(app, access)

    @app.post(f"{OPERATOR}actions/{{name}}")
    async def act(name: str, values: dict[str, JsonValue]) -> Response:
        """Do something: see `ACTIONS`."""
        if (action := ACTIONS.get(name)) is None:
            raise PageFault(
                404, "no_route", f"There is no action {name!r}.", f"There are: {', '.join(ACTIONS)}."
            )
        request = _request(action, values)
        async with operator(context) as client:
            if action.method is OperatorMethods.Drain:  # its stream lasts until the last call has ended
                async with aclosing(_closable(client.watch(action.method, request))) as answers:
                    return JsonAnswer(record(await anext(answers)))
            return JsonAnswer(record(await client.ask(action.method, request)))


def _add_session(app: FastAPI, access: PageAccess) -> None:
    @app.post(OPEN)
    async def open_session(wanted: _Link) -> Response:
        """Open a session with the secret of a link, which is good once."""
        opened = access.open(wanted.link)
        if opened is None:
            raise PageFault(
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


def _request(action: Action, values: dict[str, JsonValue]) -> Message:
    """Make the request of an action. Raises PageFault for what it does not have."""
    if unknown := sorted(values.keys() - action.fields):
        allowed = ", ".join(sorted(action.fields)) or "no field"
        raise PageFault(422, "invalid_request", f"{unknown[0][:64]!r} is not known; there is: {allowed}.")
    request: Message = action.method.request()
    try:
        return json_format.ParseDict(values, request)
    except json_format.ParseError as error:
        raise PageFault(422, "invalid_request", str(error)[:400]) from error


async def _closable(answers: Any) -> AsyncGenerator[Message]:
    async for answer in answers:
        yield answer
