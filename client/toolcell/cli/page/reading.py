"""The routes that show: each asks the daemon, as an operator, and changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from toolcell._version import VERSION
from toolcell.adapters.gateway.application import JsonAnswer
from toolcell.cli._ui.connect import CommandContext, ask, operator
from toolcell.cli._ui.format import time_ago
from toolcell.cli._ui.json_output import output_record, problem, record, tool
from toolcell.cli.calls.listing import record_of
from toolcell.cli.page.access import OPERATOR, PageSession
from toolcell.cli.page.live import Live
from toolcell.cli.page.rows import rates, row
from toolcell.client import Refused
from toolcell.client._grpc.methods import OperatorMethods
from toolcell.client._transport.messages import read_catalog
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

CALLS_MAX: Final = 1000
"""What one list of the daemon has."""
OUTPUT_BYTES_MAX: Final = 64 * 1024
PLACES_MAX: Final = 32
"""Directories whose problems are asked for."""
SECONDS_MAX: Final = 400 * 86_400.0

Text = Annotated[str, Query(max_length=4096)]
Ago = Annotated[float, Query(ge=0, le=SECONDS_MAX, description="Seconds before now; 0: any time.")]


def add_reading(app: FastAPI, context: CommandContext, live: Live) -> None:
    """Add the routes to an application."""
    _add_session(app, live)
    _add_calls(app, context)
    _add_tools(app, context)
    _add_happenings(app, context)


def session_of(request: Request) -> PageSession:
    """Return the session that the guard has found."""
    session = request.scope["page_session"]
    assert isinstance(session, PageSession)
    return session


def _add_session(app: FastAPI, live: Live) -> None:
    @app.get(f"{OPERATOR}session")
    async def session(request: Request) -> Response:
        """Who looks, and where."""
        own = session_of(request)
        return JsonAnswer({"may_act": own.may_act, "directory": os.getcwd(), "version": VERSION})

    @app.get(f"{OPERATOR}live")
    async def follow(request: Request) -> Response:
        """The state of the daemon, each two seconds, as server-sent events."""
        return StreamingResponse(live.stream(session_of(request)), media_type="text/event-stream")


def _add_calls(app: FastAPI, context: CommandContext) -> None:
    @app.get(f"{OPERATOR}calls")
    async def calls(
        tool: Text = "",
        session: Text = "",
        agent: Text = "",
        outcome: Text = "",
        failed: bool = False,
        since: Ago = 0.0,
        until: Ago = 0.0,
        limit: Annotated[int, Query(ge=1, le=CALLS_MAX)] = 100,
    ) -> Response:
        """Calls of the daemon and of those before it: the running ones first, then the newest."""
        request = op.ListCallsRequest(
            tool=tool,
            session_id=session,
            agent=agent,
            outcome=outcome,
            failed=failed,
            since=time_ago(since or None),
            until=time_ago(until or None),
            limit=limit,
        )
        found = await ask(context, OperatorMethods.ListCalls, request)
        return JsonAnswer({"calls": [row(call) for call in found.calls]})

    @app.get(f"{OPERATOR}rates")
    async def over_time(
        tool: Text = "", since: Annotated[float, Query(gt=0, le=SECONDS_MAX)] = 3600.0
    ) -> Response:
        """Outcomes and times of the last calls, at most a thousand, in sixty parts of a time."""
        now = time.time()
        request = op.ListCallsRequest(tool=tool, since=time_ago(since or None), limit=CALLS_MAX)
        found = await ask(context, OperatorMethods.ListCalls, request)
        rows = [row(call) for call in found.calls]
        cut = len(rows) == CALLS_MAX
        earliest = min((each["ended"] for each in rows if each["ended"]), default=now)
        start = max(now - since, min(earliest, now - 1)) if cut else now - since
        return JsonAnswer({"parts": rates(rows, start, now), "since": start, "until": now, "cut": cut})

    @app.get(f"{OPERATOR}calls/{{call_id}}")
    async def call(call_id: str) -> Response:
        """One call with its story."""
        found = await ask(context, OperatorMethods.GetCall, op.GetCallRequest(call_id=call_id))
        return JsonAnswer(record(found) | {"call": record_of(found.call) | row(found.call)})

    @app.get(f"{OPERATOR}outputs/{{output_id}}")
    async def output(
        output_id: str,
        start: Annotated[int, Query(ge=0, le=2**62)] = 0,
        length: Annotated[int, Query(ge=1, le=OUTPUT_BYTES_MAX)] = OUTPUT_BYTES_MAX,
    ) -> Response:
        """A range of an output that was cut, as text; bytes that are none become U+FFFD."""
        request = pb.ReadOutputRequest(output_id=output_id, start_bytes=start, length_bytes=length)
        data, about = bytearray(), None
        async with operator(context) as client:
            async for part in client.watch(client.tools.ReadOutput, request):
                data += part.data
                about = output_record(part.output) if part.HasField("output") else about
        text = data.decode(errors="replace")
        return JsonAnswer({"start": start, "end": start + len(data), "text": text, "output": about})


def _add_tools(app: FastAPI, context: CommandContext) -> None:
    @app.get(f"{OPERATOR}tools")
    async def tools(directory: Text = "") -> Response:
        """The tools of a directory, and the directories that there are."""
        async with operator(context) as client:
            places = await _places(client)
            place = directory or places[0]
            listed = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=place))
        catalog = read_catalog([listed.catalog])
        return JsonAnswer(
            {
                "directory": place,
                "directories": places,
                "tools": [tool(each) for each in catalog.tools.values()],
                "problems": [problem(each) for each in catalog.problems],
            }
        )

    @app.get(f"{OPERATOR}tools/{{name}}")
    async def one_tool(name: str, directory: Text = "") -> Response:
        """A tool with its settings and its permit; a name without a tool has only what is known of it."""
        place = directory or os.getcwd()
        shown: dict[str, Any] = {"name": name, "directory": place, "tool": None, "settings": [], "permit": []}
        shown["quarantined"] = False
        async with operator(context) as client:
            try:
                request = pb.GetToolRequest(directory=place, name=name)
                found = await client.ask(client.tools.GetTool, request)
                (info,) = read_catalog([pb.CatalogPart(tools=[found.tool])]).tools.values()
                shown |= {"tool": tool(info), "settings": [record(each) for each in found.settings]}
                workers = await client.ask(client.operator.ListWorkers, op.ListWorkersRequest())
                shown["quarantined"] = info.path in {each.path for each in workers.quarantined}
                asked = op.ExplainRequest(directory=place, tool=name)
                explained = await client.ask(client.operator.Explain, asked)
                shown["permit"] = [record(each) for each in explained.explanations]
            except Refused as error:
                shown["refused"] = {
                    "reason": error.reason, "message": error.message, "remedy": error.remedy
                }  # fmt: skip
        return JsonAnswer(shown)


def _add_happenings(app: FastAPI, context: CommandContext) -> None:
    @app.get(f"{OPERATOR}events")
    async def events(
        kind: Annotated[str, Query(alias="type", max_length=256)] = "",
        tool: Text = "",
        since: Ago = 0.0,
        limit: Annotated[int, Query(ge=1, le=CALLS_MAX)] = 100,
    ) -> Response:
        """Events of the records, the newest first; "decision." is the audit."""
        request = op.ListEventsRequest(type=kind, tool=tool, since=time_ago(since or None), limit=limit)
        found = await ask(context, OperatorMethods.ListEvents, request)
        return JsonAnswer({"events": [record(event) for event in found.events]})

    @app.get(f"{OPERATOR}sessions")
    async def sessions() -> Response:
        """The sessions of agents."""
        found = await ask(context, OperatorMethods.ListSessions, op.ListSessionsRequest())
        return JsonAnswer({"sessions": [record(each) for each in found.sessions]})

    @app.get(f"{OPERATOR}problems")
    async def problems() -> Response:
        """What is wrong: broken files, quarantine, disabled tools, trust that is wanted."""
        async with operator(context) as client:
            workers = await client.ask(client.operator.ListWorkers, op.ListWorkersRequest())
            status = await client.ask(client.operator.GetStatus, op.GetStatusRequest())
            places = [each async for each in _troubles(client, (await _places(client))[:PLACES_MAX])]
        return JsonAnswer(
            {
                "quarantined": [record(each) for each in workers.quarantined],
                "disabled": [record(each) for each in status.disabled],
                "records_fault": status.records_fault,
                "places": places,
            }
        )


async def _troubles(client: Operator, places: list[str]) -> AsyncGenerator[dict[str, Any]]:
    for place in places:
        about: dict[str, Any] = {"directory": place, "problems": [], "waiting": [], "notices": []}
        try:
            listed = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=place))
            about["problems"] = [problem(each) for each in listed.catalog.problems]
            asked = await client.ask(client.operator.GetTrust, op.GetTrustRequest(directory=place))
        except Refused as error:
            about["refused"] = error.message
        else:
            about["notices"] = list(asked.notices)
            about["waiting"] = [
                {"tool": it.tool, "why": it.why, "held": list(it.held), "command": it.command}
                for it in asked.tools
                if it.held
            ]
            about["waiting"] += [
                {"tool": it.path, "why": it.why, "held": list(it.gets), "command": it.command}
                for it in asked.files
                if it.why
            ]
        yield about


async def _places(client: Operator) -> list[str]:
    """Return the directories that sessions use, after the own one."""
    found = await client.ask(client.operator.ListSessions, op.ListSessionsRequest())
    return list(dict.fromkeys([os.getcwd(), *sorted({each.directory for each in found.sessions})]))
