"""The routes of the gateway.

A call that failed is an answer like any other, with the status 200: how it ended is in the outcome. Other statuses
say that there is no such tool, session, call or output, that the request is not valid, or that no daemon serves it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from toolcell._version import VERSION
from toolcell.client import Kind, Outcome, Refused, Unavailable

from .feed import Feed, as_sse
from .models import (
    CallInfo,
    CallRequest,
    FaultBody,
    OutcomeBody,
    Reloaded,
    SessionInfo,
    SessionRequest,
    Tool,
    ToolError,
    Tools,
)
from .sessions import SESSIONS_MAX, GatewaySession, GatewaySessions, NoSession, RunningCall, TooMany

ROOT = "/api/"
EVENTS = "text/event-stream"
DESCRIBE_SECONDS = 10.0  # for files that are still being loaded when the tools are listed
OUTPUT_BYTES_MAX = 16 * 1024 * 1024  # of one response; the next begins where it ends
POSITION_MAX = 2**62
REFUSED_STATUS = {
    "unknown_tool": 404,
    "not_allowed": 403,
    "disabled": 403,
    "needs_grant": 403,
    "untrusted": 403,
    "broken_tool": 409,
    "quarantined": 409,
    "too_large": 422,
    "bad_request": 422,
}
"""Statuses by the reason of a refusal; all others are 503, for the daemon may take the same call later."""

_FAULTS: dict[int | str, dict[str, Any]] = {
    status: {"model": FaultBody, "description": description}
    for status, description in {
        400: "The body is no JSON.",
        401: "The token is missing or wrong.",
        403: "The tool may not be called, or not without a grant.",
        404: "There is no such thing.",
        409: "The tool is broken, or switched off because it failed too often.",
        422: "The request is not valid.",
        429: "There are too many sessions.",
        503: "No daemon serves the request.",
    }.items()
}
SessionId = Annotated[
    str | None, Query(alias="session", max_length=64, description="Default: the session of all.")
]


class _Fault(Exception):
    """What a request is answered that is not served."""

    def __init__(self, status: int, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"reason": reason, "message": message, "remedy": remedy}}


def application(sessions: GatewaySessions) -> FastAPI:
    """The ASGI application of a gateway; the caller guards it, and enters and leaves `sessions`."""
    app = FastAPI(
        title="Toolcell",
        version=VERSION,
        summary="The tools of a directory.",
        openapi_url=f"{ROOT}openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses={status: _FAULTS[status] for status in (400, 401, 422, 503)},
    )
    _handle_errors(app)
    _add_tools(app, sessions)
    _add_sessions(app, sessions)
    _add_calls(app, sessions)
    _add_outputs(app, sessions)
    return app


def _add_tools(app: FastAPI, sessions: GatewaySessions) -> None:
    @app.get("/api/tools", response_model_exclude_none=True, responses=_some(404))
    async def list_tools(session: SessionId = None) -> Tools:
        """The tools of the directory, with how many come with Toolcell."""
        async with sessions.use(session) as held:
            return Tools.of(await held.session.described(DESCRIBE_SECONDS))

    @app.get("/api/tools/{name}", response_model_exclude_none=True, responses=_some(404))
    async def get_tool(name: str, session: SessionId = None) -> Tool:
        """One tool."""
        async with sessions.use(session) as held:
            info = (await held.session.described(DESCRIBE_SECONDS)).tools.get(name)
        if info is None:
            raise _Fault(404, "unknown_tool", f"Tool not found: {name}", "GET /api/tools lists them.")
        return Tool.of(info)

    @app.post("/api/tools/reload", response_model_exclude_none=True, responses=_some(404))
    async def reload_tools(session: SessionId = None) -> Reloaded:
        """Read the files of the directory again, and wait until they are loaded."""
        async with sessions.use(session) as held:
            await held.session.reload()
            catalog = await held.session.described(DESCRIBE_SECONDS)
        errors = [ToolError.of(problem) for problem in catalog.errors]
        return Reloaded(success=True, tool_count=len(catalog.tools), errors=errors)


def _add_sessions(app: FastAPI, sessions: GatewaySessions) -> None:
    @app.get("/api/sessions")
    async def list_sessions() -> list[SessionInfo]:
        """The open sessions of this gateway; the one of all is not among them."""
        return [_info(held, sessions.directory) for held in sessions.opened]

    @app.post("/api/sessions", status_code=201, responses=_some(429))
    async def open_session(wanted: SessionRequest | None = None) -> SessionInfo:
        """Open a session: tools with `isolation = "session"` keep their state in it. It ends when it is idle for long."""
        wanted = wanted or SessionRequest()
        held = await sessions.open(allow=wanted.allow, deny=wanted.deny)
        return _info(held, sessions.directory)

    @app.delete("/api/sessions/{session_id}", status_code=204, responses=_some(404))
    async def close_session(session_id: str) -> None:
        """Close a session; its running calls are aborted."""
        async with sessions.use(_given(session_id)) as held:
            sessions.close(held)


def _add_calls(app: FastAPI, sessions: GatewaySessions) -> None:
    @app.post(
        "/api/calls",
        response_model=OutcomeBody,
        responses={**_some(403, 404, 409), 200: {"content": {EVENTS: {}}, "description": "How it ended."}},
    )
    async def call_tool(request: Request, wanted: CallRequest, session: SessionId = None) -> Response:
        """Call a tool, and wait until it has ended; closing the connection aborts it.

        With `Accept: text/event-stream` the response is what happens meanwhile: `tool_use` with the arguments,
        `message` for what the tool tells, `tool_result` or `error` with the outcome, and `completed`.
        """
        async with sessions.use(session) as held:
            start = partial(_start, sessions, held, wanted)
            if EVENTS in request.headers.get("accept", ""):
                return _CallEvents(sessions.feed, start)
            return _answered(*await _run(request, start()))

    @app.get("/api/calls")
    async def list_calls() -> list[CallInfo]:
        """The running calls of this gateway."""
        return [
            CallInfo(call_id=running.call.id, tool=running.call.tool, session=held.id or None)
            for held in sessions.every
            for running in held.calls.values()
        ]

    @app.delete("/api/calls/{call_id}", status_code=202, responses=_some(404))
    async def abort_call(call_id: str) -> None:
        """Abort a call; the caller gets its outcome."""
        running = next((held.calls[call_id] for held in sessions.every if call_id in held.calls), None)
        if running is None:
            raise _Fault(
                404, "unknown_call", f"No call of the id {call_id!r} runs.", "GET /api/calls lists them."
            )
        running.call.abort("by the client")

    @app.get("/api/events", response_class=StreamingResponse, responses={200: {"content": {EVENTS: {}}}})
    async def follow() -> Response:
        """What happens in all sessions of this gateway, as server-sent events: calls as above, and `tools` for changes."""
        return StreamingResponse(_followed(sessions), media_type=EVENTS, headers=UNBUFFERED)


def _add_outputs(app: FastAPI, sessions: GatewaySessions) -> None:
    @app.get(
        "/api/outputs/{output_id}",
        response_class=Response,
        responses={**_some(404), 200: {"content": {"application/octet-stream": {}}}},
    )
    async def read_output(
        output_id: str,
        start: Annotated[int, Query(ge=0, le=POSITION_MAX, description="The first byte.")] = 0,
        length: Annotated[
            int, Query(ge=1, le=OUTPUT_BYTES_MAX, description="Bytes at most.")
        ] = OUTPUT_BYTES_MAX,
        session: SessionId = None,
    ) -> Response:
        """Read an output that was cut, as the `output` of an outcome names it; in the session of the call."""
        async with sessions.use(session) as held:
            data = await held.session.read_output(output_id, start=start, length=length)
        return Response(
            data, media_type="application/octet-stream", headers={"X-Content-Type-Options": "nosniff"}
        )


GONE = "the client has gone"
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def _some(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _FAULTS[status] for status in statuses}


def _info(held: GatewaySession, directory: str) -> SessionInfo:
    return SessionInfo(
        session=held.id, directory=directory, tools=len(held.session.catalog.tools), calls=len(held.calls)
    )


def _given(session_id: str) -> str:
    if not session_id:
        raise NoSession(session_id)
    return session_id


def _start(sessions: GatewaySessions, held: GatewaySession, wanted: CallRequest) -> RunningCall:
    try:
        return sessions.start(held, wanted.tool, wanted.arguments, wanted.timeout)
    except (TypeError, ValueError) as error:
        raise _Fault(422, "invalid_arguments", str(error)) from error


async def _run(request: Request, running: RunningCall) -> tuple[RunningCall, Outcome]:
    """Wait for a call; a client that goes away aborts it."""
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({running.ended, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.ended.done():
            running.call.abort(GONE)
        return running, await asyncio.shield(running.ended)
    except asyncio.CancelledError:
        running.call.abort(GONE)
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answered(running: RunningCall, outcome: Outcome) -> Response:
    if outcome.kind is Kind.refused:
        reason = outcome.cause or "refused"
        raise _Fault(REFUSED_STATUS.get(reason, 503), reason, outcome.message)
    return JsonAnswer({"call_id": running.call.id, **outcome.to_dict()})


class _CallEvents(StreamingResponse):
    """A call as server-sent events; a client that goes away aborts it."""

    media_type = EVENTS

    def __init__(self, feed: Feed, start: Callable[[], RunningCall]) -> None:
        own = ""
        with ExitStack() as stack:
            reader = stack.enter_context(feed.reader(lambda event: event.call_id == own))
            self._running = start()
            self._reading = stack.pop_all()
        own = self._running.call.id  # the first event comes when the call's task runs
        super().__init__(as_sse(reader, lambda event: event.name == "completed"), headers=UNBUFFERED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reading.close()
            if not self._running.ended.done():
                self._running.call.abort(GONE)


async def _followed(sessions: GatewaySessions) -> AsyncGenerator[bytes]:
    with sessions.feed.reader() as reader:
        async for part in as_sse(reader, lambda _: False):
            yield part


class JsonAnswer(JSONResponse):
    """JSON in ASCII: texts of clients may hold what UTF-8 cannot say."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def _handle_errors(app: FastAPI) -> None:
    """Have every error answered in one shape."""

    async def answer(_: Request, error: Exception) -> Response:
        fault = _fault_of(error)
        return JsonAnswer(fault.body, fault.status, getattr(error, "headers", None))

    for kind in (_Fault, NoSession, TooMany, Unavailable, Refused, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def _fault_of(error: Exception) -> _Fault:
    match error:
        case _Fault():
            return error
        case NoSession():
            opening = "POST /api/sessions opens one."
            return _Fault(404, "unknown_session", f"There is no session {error}.", opening)
        case TooMany():
            return _Fault(429, "too_many_sessions", f"{SESSIONS_MAX} sessions are open.", "Close one.")
        case Unavailable():
            return _Fault(503, "unavailable", error.message, error.remedy)
        case Refused():
            status = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 422}.get(error.status.name, 503)
            return _Fault(status, error.code, error.message, error.remedy)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException(status_code=status):
            reason = {404: "no_route", 405: "method_not_allowed"}.get(status, "invalid_request")
            return _Fault(status, reason, str(error.detail), "GET /api/openapi.json lists the routes.")
        case _:
            raise error


def _invalid(error: RequestValidationError) -> _Fault:
    faults: list[str] = []
    for fault in error.errors():
        if fault["type"] == "json_invalid":  # its place is a letter of the body
            why = fault.get("ctx", {}).get("error", "")
            message = f"The body is no JSON, at its character {fault['loc'][-1]}: {why}."
            return _Fault(422, "invalid_request", message, "Send an object, as GET /api/openapi.json says.")
        faults.append(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")
    return _Fault(
        422, "invalid_request", "; ".join(faults[:8]), "GET /api/openapi.json says what is expected."
    )
