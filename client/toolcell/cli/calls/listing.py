"""`toolcell calls`, `sessions` and `ps`: what there is in a running daemon, as tables and as whole stories.

A plural noun lists, a noun with a name shows one. Without a daemon there is nothing to tell, so none is started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from toolcell._units import format_bytes, format_seconds
from toolcell.cli._ui import outcome_text
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import ago, clean
from toolcell.cli._ui.json_output import record, time_of
from toolcell.cli._ui.prose import fitted, print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts, print_table
from toolcell.client import Kind, Outcome
from toolcell.client._transport.messages import read_outcome
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

__all__ = ["calls", "ps", "sessions"]


async def calls(context: CommandContext, call_id: str | None) -> Exit:
    """Running and recent calls, or the whole story of one."""
    async with operator(context) as client:
        if call_id is not None:
            answer = await client.ask(client.operator.GetCall, op.GetCallRequest(call_id=call_id))
            print_json(record(answer) | {"call": _record(answer.call)}) if context.as_json else _print_story(
                answer
            )
            return Exit.OK
        found = (await client.ask(client.operator.ListCalls, op.ListCallsRequest())).calls
    if context.as_json:
        print_json({"calls": [_record(call) for call in found]})
    else:
        _print_calls(found)
    return Exit.OK


def _outcome(call: pb.CallInfo) -> Outcome | None:
    """How a call ended, which is also an Outcome where it was refused; None while it runs."""
    if call.refusal_reason:
        return Outcome(Kind.refused, call.refusal_reason.lower(), call.refusal)
    return read_outcome(call.outcome, b"") if call.HasField("outcome") else None


def _record(call: pb.CallInfo) -> dict[str, Any]:
    """A call as JSON has it."""
    known = record(call)
    del known["refusal_reason"], known["refusal"]
    outcome = _outcome(call)
    return known | {"outcome": outcome.to_dict() if outcome is not None else None}


def _print_calls(found: Sequence[pb.CallInfo]) -> None:
    now = datetime.now(UTC)
    print_table(
        ("CALL", "TOOL", "STATE", "ACCEPTED", "RAN", "AGENT", "DIRECTORY"),
        [
            (
                call.call_id,
                call.tool,
                _ending(call),
                ago(time_of(call.accepted), now),
                format_seconds(call.outcome.facts.run_seconds) if call.HasField("outcome") else "-",
                _agent(call),
                call.directory,
            )
            for call in found
        ],
        right=("RAN",),
        wrap=("TOOL", "STATE", "DIRECTORY"),
        empty="There are no calls to show.",
    )


def _ending(call: pb.CallInfo) -> str:
    outcome = _outcome(call)
    if outcome is None:
        return call.state
    return f"{outcome.kind.value} ({outcome.cause})" if outcome.cause else outcome.kind.value


def _agent(call: pb.CallInfo) -> str:
    return f"{call.agent}/{call.agent_name}" if call.agent_name not in ("", "main") else call.agent or "-"


def _print_story(answer: op.GetCallResponse) -> None:
    call = answer.call
    facts: list[tuple[str, str]] = [
        ("call", call.call_id),
        ("tool", call.tool),
        ("state", _ending(call)),
        ("agent", _agent(call)),
        ("session", call.session_id),
        ("directory", call.directory),
        ("worker", call.worker_id or "-"),
    ]
    if call.HasField("outcome"):
        facts += _figures(call.outcome.facts)
    if answer.arguments:
        facts.append(("arguments", answer.arguments))
    print_facts(facts)
    print()
    began = time_of(answer.story[0].time) if answer.story else None
    for line in answer.story:
        time = time_of(line.time)
        assert time is not None
        assert began is not None
        print(
            f"{time.astimezone():%H:%M:%S.%f}"[:-3],
            f"{f'+{format_seconds((time - began).total_seconds())}':>9}",
            clean(line.text),
        )
    outcome = _outcome(call)
    if answer.result.strip() and (outcome is None or answer.result.strip() != outcome.message.strip()):
        print("\nresult")
        for text in answer.result.strip("\n").split("\n"):
            print(f"  {text}" if text else "")
    if outcome is not None:
        lines = [*outcome_text.remarks(call.tool, outcome, datetime.now().astimezone())]
        if message := outcome_text.message(call.tool, outcome):
            lines.append(fitted(message, sys.stdout))
        if lines:
            print("\n".join(["", *lines]))


def _figures(facts: pb.Facts) -> Iterator[tuple[str, str]]:
    yield "waited", format_seconds(facts.queue_seconds)
    yield "ran", f"{format_seconds(facts.run_seconds)}, {format_seconds(facts.cpu_seconds)} of processor time"
    yield "memory", format_bytes(facts.memory_peak_bytes)
    yield (
        "result",
        format_bytes(facts.output_bytes)
        + (f", {format_bytes(facts.spilled_bytes)} kept beside" if facts.spilled_bytes else ""),
    )
    if facts.stop_seconds:
        yield (
            "stopped",
            f"within {format_seconds(facts.stop_seconds)}, {facts.killed_processes} processes killed",
        )
    if facts.leftover_processes or facts.leftover_threads:
        yield "left", f"{facts.leftover_processes} processes, {facts.leftover_threads} threads"
    if facts.refused_hosts:
        yield "refused hosts", ", ".join(facts.refused_hosts)


async def sessions(context: CommandContext, session_id: str | None) -> Exit:
    """The sessions, or one with its calls."""
    async with operator(context) as client:
        found = (
            await client.ask(
                client.operator.ListSessions, op.ListSessionsRequest(session_id=session_id or "")
            )
        ).sessions
        if session_id is None:
            _list_sessions(context, found)
            return Exit.OK
        if len(found) != 1:
            what = f"{len(found)} sessions begin" if found else "There is no session that begins"
            raise Failure(
                Exit.REFUSED,
                "unknown_session",
                f"{what} with {clean(session_id)!r}.",
                "See: toolcell sessions",
            )
        request = op.ListCallsRequest(session_id=found[0].session_id)
        running = (await client.ask(client.operator.ListCalls, request)).calls
    if context.as_json:
        print_json({"session": record(found[0]), "calls": [_record(call) for call in running]})
        return Exit.OK
    session = found[0]
    print_facts(
        [
            ("session", session.session_id),
            ("state", session.state),
            ("agent", session.agent),
            ("directory", session.directory),
            ("opened", ago(time_of(session.opened), datetime.now(UTC))),
            ("calls", f"{session.calls} waiting or running, {session.calls_ended} ended"),
            ("catalog", f"generation {session.generation}"),
            ("kept", f"{format_bytes(session.retained_bytes)} that its agent has not acknowledged"),
        ]
    )
    print()
    _print_calls(running)
    return Exit.OK


def _list_sessions(context: CommandContext, found: Sequence[op.SessionInfo]) -> None:
    if context.as_json:
        print_json({"sessions": [record(session) for session in found]})
        return
    now = datetime.now(UTC)
    print_table(
        ("SESSION", "AGENT", "STATE", "OPENED", "CALLS", "ENDED", "DIRECTORY"),
        [
            (
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
    now = datetime.now(UTC)
    print_table(
        ("WORKER", "STATE", "SINCE", "PID", "MEMORY", "CALLS", "CALL", "FILE"),
        [
            (
                worker.worker_id,
                worker.state,
                ago(time_of(worker.since), now),
                str(worker.pid or "-"),
                format_bytes(worker.memory_bytes) if worker.memory_bytes else "-",
                str(worker.calls),
                worker.call_id or "-",
                worker.path,
            )
            for worker in found
        ],
        right=("PID", "MEMORY", "CALLS"),
        wrap=("FILE",),
        empty="There are no workers.",
    )
    if answer.quarantined:
        print("\nIn quarantine; toolcell release TOOL lets one out:")
    for shut_out in answer.quarantined:
        print_prose(
            f"  {clean(shut_out.path)}: {len(shut_out.deaths)} deaths, the last of {clean(shut_out.deaths[-1].cause)}, "
            f"{ago(time_of(shut_out.since), now)}"
        )
    return Exit.OK
