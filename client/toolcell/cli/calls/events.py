"""`toolcell events` and `toolcell audit`: what has happened besides calls, and what people have decided.

Both read the records of the daemon, which go back beyond its start. With `--follow` new events are printed as they come.
"""

from __future__ import annotations

import sys
from typing import Any

from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.format import clean, time_ago, time_of
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
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
    async with operator(context) as client:
        listed = await client.ask(client.operator.ListEvents, request)
        found = list(reversed(listed.events))
        if context.as_json and not follow:
            print_json({"events": [record(event) for event in found]})
            return Exit.OK
        for event in found:
            _print(context, event)
        sys.stdout.flush()
        if follow:
            watched = op.WatchEventsRequest(type=request.type, session_id=request.session_id, recorded=True)
            async for event in client.watch(client.operator.WatchEvents, watched):
                if request.tool in ("", event.tool) or event.type == "gap":
                    _print(context, event)
                    sys.stdout.flush()
    if not found and not follow:
        Terminal(quiet=context.quiet).note("There are no events to show.\n")
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
