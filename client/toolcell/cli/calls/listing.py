"""`toolcell calls`, `sessions` and `ps`: what there is in a running daemon, as tables and as whole stories.

A plural noun lists, a noun with a name shows one. Without a daemon there is nothing to tell, so none is started.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from toolcell._units import format_bytes
from toolcell.cli._ui.answers import (
    NODE,
    outcome_of,
    print_calls,
    print_ended,
    print_story,
    print_workers,
    say_fault_of_records,
)
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.following import Seen, followed
from toolcell.cli._ui.format import ago, clean, time_ago, time_of
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts, print_table
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb


async def calls(
    context: CommandContext,
    call: str | None,
    *,
    session: str,
    since: float | None,
    until: float | None,
    follow: bool,
    **filters: Any,
) -> Exit:
    """Running and earlier calls, or the whole story of one.

    Args:
        call: The id of the one whose story is wanted; None for a list.
        session: Only those of this session; default: "", of all.
        since: Only those of the last so many seconds; None for all.
        until: Only those before so many seconds ago; None for all.
        follow: Whether to print calls as they end until interrupted.
        filters: The other fields of the request.
    """
    request = op.ListCallsRequest(session_id=session, since=time_ago(since), until=time_ago(until), **filters)
    if call is not None and (follow or request != op.ListCallsRequest()):
        raise Misuse("One call is shown whole.", "Leave out its id, or the other options.")
    if follow:
        return await _follow(context, request)
    async with operator(context) as client:
        if call is not None:
            answer = await client.ask(client.operator.GetCall, op.GetCallRequest(call_id=call))
            print_json(record(answer) | {"call": record_of(answer.call)}) if context.as_json else print_story(
                answer
            )
            return Exit.OK
        found = await client.ask(client.operator.ListCalls, request)
    if context.as_json:
        print_json({"calls": [record_of(call) for call in found.calls]})
    else:
        print_calls(found.calls, of_nodes=client.of_nodes)
    sys.stdout.flush()
    say_fault_of_records(Terminal(quiet=context.quiet), found.records_fault)
    return Exit.OK


async def _follow(context: CommandContext, request: op.ListCallsRequest) -> Exit:
    seen = Seen()

    def watch(client: Operator) -> AsyncIterator[op.FollowCallsResponse]:
        wanted = op.FollowCallsRequest(filter=seen.wanted(request))
        return client.watch(client.operator.FollowCalls, wanted)

    async for ended in followed(context, watch):
        call = ended.call
        if seen.is_new(time_of(call.ended), (call.session_id, call.call_id)):
            print_json(record_of(call)) if context.as_json else print_ended(call)
            sys.stdout.flush()
    return Exit.OK


def record_of(call: pb.CallInfo) -> dict[str, Any]:
    """A call as JSON has it."""
    known = record(call)
    del known["refusal_reason"], known["refusal"]
    outcome = outcome_of(call)
    return known | {"outcome": outcome.to_dict() if outcome is not None else None}


async def sessions(context: CommandContext, session: str | None) -> Exit:
    """The sessions, or one with its calls."""
    async with operator(context) as client:
        found = (
            await client.ask(client.operator.ListSessions, op.ListSessionsRequest(session_id=session or ""))
        ).sessions
        if session is None:
            _list_sessions(context, found, of_nodes=client.of_nodes)
            return Exit.OK
        if len(found) != 1:
            what = f"{len(found)} sessions begin" if found else "There is no session that begins"
            raise Failure(
                Exit.REFUSED,
                "unknown_session",
                f"{what} with {clean(session)!r}.",
                "See: toolcell sessions",
            )
        request = op.ListCallsRequest(session_id=found[0].session_id)
        running = (await client.ask(client.operator.ListCalls, request)).calls
    if context.as_json:
        print_json({"session": record(found[0]), "calls": [record_of(call) for call in running]})
        return Exit.OK
    (shown,) = found
    print_facts(
        [
            ("session", shown.session_id),
            ("state", shown.state),
            ("agent", shown.agent),
            ("directory", shown.directory),
            ("opened", ago(time_of(shown.opened), datetime.now(UTC))),
            ("calls", f"{shown.calls} waiting or running, {shown.calls_ended} ended"),
            ("catalog", f"generation {shown.generation}"),
            ("kept", f"{format_bytes(shown.retained_bytes)} that its agent has not acknowledged"),
        ]
    )
    print()
    print_calls(running, of_nodes=client.of_nodes)
    return Exit.OK


def _list_sessions(context: CommandContext, found: Sequence[op.SessionInfo], *, of_nodes: bool) -> None:
    if context.as_json:
        print_json({"sessions": [record(session) for session in found]})
        return
    now = datetime.now(UTC)
    print_table(
        (*NODE[:of_nodes], "SESSION", "AGENT", "STATE", "OPENED", "CALLS", "ENDED", "DIRECTORY"),
        [
            (
                *((session.node,) if of_nodes else ()),
                session.session_id,
                session.agent,
                session.state,
                ago(time_of(session.opened), now),
                str(session.calls),
                str(session.calls_ended),
                session.directory,
            )
            for session in found
        ],
        right=("CALLS", "ENDED"),
        wrap=("AGENT", "DIRECTORY"),
        empty="There are no sessions.",
    )


async def ps(context: CommandContext) -> Exit:
    """The workers, and the files that none is started for."""
    async with operator(context) as client:
        answer = await client.ask(client.operator.ListWorkers, op.ListWorkersRequest())
    found = answer.workers
    if context.as_json:
        held = [record(file) for file in answer.quarantined]
        print_json({"workers": [record(worker) for worker in found], "quarantined": held})
        return Exit.OK
    print_workers(answer, of_nodes=client.of_nodes)
    return Exit.OK
