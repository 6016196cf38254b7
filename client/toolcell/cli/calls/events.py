"""`toolcell events` and `toolcell audit`: what has happened besides calls, and what people have decided.

Both read the records of the daemon, which go back beyond its start. With `--follow` new events are printed as they come,
also those of the next daemon when this one ends.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from toolcell.cli._ui.answers import say_fault_of_records
from toolcell.cli._ui.connect import CommandContext, ask
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.following import Seen, followed
from toolcell.cli._ui.format import clean, time_ago, time_of
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._grpc.methods import OperatorMethods
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op


async def audit(context: CommandContext, **words: Any) -> Exit:
    """What people have decided, the newest last; the words are those of `events`."""
    return await events(context, kind="decision.", session="", **words)


async def events(
    context: CommandContext,
    *,
    kind: str,
    session: str,
    since: float | None,
    until: float | None,
    follow: bool,
    **filters: Any,
) -> Exit:
    """What has happened, the newest last.

    Args:
        kind: Their type, or how it begins where it ends with a dot; "" for all.
        session: Of this session; "" for all.
        since: Of the last so many seconds; None for all.
        until: Before so many seconds ago; None for all.
        follow: Whether to print new events until interrupted.
        filters: The other fields of the request.
    """
    request = op.ListEventsRequest(
        type=kind, session_id=session, since=time_ago(since), until=time_ago(until), **filters
    )
    if follow:
        return await _follow(context, request)
    listed = await ask(context, OperatorMethods.ListEvents, request)
    if context.as_json:
        print_json({"events": [record(event) for event in reversed(listed.events)]})
    for event in () if context.as_json else reversed(listed.events):
        _print(context, event)
    sys.stdout.flush()
    terminal = Terminal(quiet=context.quiet)
    say_fault_of_records(terminal, listed.records_fault)
    if not listed.events and not context.as_json:
        terminal.note("There are no events to show.\n")
    return Exit.OK


async def _follow(context: CommandContext, request: op.ListEventsRequest) -> Exit:
    seen = Seen()

    def watch(client: Operator) -> AsyncIterator[op.WatchEventsResponse]:
        watched = op.WatchEventsRequest(
            type=request.type,
            session_id=request.session_id,
            tool=request.tool,
            recorded=True,
            earlier=seen.wanted(request),
        )
        return client.watch(client.operator.WatchEvents, watched)

    async for event in followed(context, watch):
        time = time_of(event.time)
        if seen.is_new(
            time, (time, event.type, event.session_id, event.call_id, event.worker_id, event.tool)
        ):
            _print(context, event)
            sys.stdout.flush()
    return Exit.OK


def _print(context: CommandContext, event: op.WatchEventsResponse) -> None:
    if context.as_json:
        print_json(record(event))
        return
    moment = time_of(event.time)
    when = f"{moment.astimezone():%Y-%m-%d %H:%M:%S}" if moment is not None else "-"
    about = " ".join(clean(each) for each in (event.tool, event.call_id or event.session_id) if each)
    message = clean(event.message) or (f"{event.count} events were lost" if event.type == "gap" else "")
    subject = f"{when} {clean(event.type)}{about and f' {about}'}"
    print_prose(f"{subject}: {message}" if message else subject)
    for line in event.details.get("stderr", "").splitlines():
        print_prose(f"  {clean(line)}")
