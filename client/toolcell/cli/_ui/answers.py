"""What is printed of a daemon's answers to `calls`, `ps` and `status`.

An answer is a message of protobuf, or one of `wire`, with the same attributes: `quick` prints what it asks for itself by
the same functions, and so this module imports none of the large libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from toolcell._units import format_bytes, format_seconds
from toolcell._version import VERSION

from .format import ago, clean, shown_file, time_of
from .prose import fitted, print_prose
from .tables import print_facts, print_table

if TYPE_CHECKING:
    from toolcell.client._grpc.wire import WireMessage
    from toolcell.client.outcome import Outcome
    from toolcell_proto.v1 import operator_pb2 as op
    from toolcell_proto.v1 import toolcell_pb2 as pb

    from .terminal import Terminal

    CallInfo: TypeAlias = pb.CallInfo | WireMessage


def outcome_of(call: CallInfo) -> Outcome | None:
    """How a call ended, which is also an Outcome where it was refused; None while it runs."""
    from toolcell.client._transport.outcomes import (  # late: `ps` and `status` need none
        read_facts,
        read_outcome,
    )
    from toolcell.client.outcome import Kind, Outcome

    if call.refusal_reason:
        return Outcome(Kind.refused, call.refusal_reason.lower(), call.refusal)
    if not call.HasField("outcome"):
        return None
    return read_outcome(call.outcome, b"", lambda: read_facts(call.outcome.facts))


NODE: Final = ("NODE",)


def say_fault_of_records(terminal: Terminal, fault: str) -> None:
    """Say why a list of what has happened may lack some of it."""
    if fault:
        terminal.say(f"Not all may be here: the records cannot be used: {clean(fault)}; see toolcell doctor")


def print_calls(found: Sequence[CallInfo], *, of_nodes: bool = False) -> None:
    """Print calls as a table; with their nodes, where they are of several."""
    now = datetime.now(UTC)
    print_table(
        (*NODE[:of_nodes], "CALL", "TOOL", "STATE", "ACCEPTED", "RAN", "AGENT", "DIRECTORY"),
        [
            (
                *((call.node,) if of_nodes else ()),
                call.call_id,
                call.tool,
                _ending(call),
                ago(time_of(call.accepted), now),
                format_seconds(call.outcome.facts.run_seconds) if call.HasField("outcome") else "-",
                agent_of(call),
                call.directory,
            )
            for call in found
        ],
        right=("RAN",),
        wrap=("TOOL", "STATE", "DIRECTORY"),
        empty="There are no calls to show.",
    )


def print_ended(call: CallInfo) -> None:
    """Print a call that has ended as one line."""
    ended = time_of(call.ended)
    when = f"{ended.astimezone():%Y-%m-%d %H:%M:%S}" if ended is not None else "-"
    ran = f", {format_seconds(call.outcome.facts.run_seconds)}" if call.HasField("outcome") else ""
    print_prose(
        f"{when} {clean(call.call_id)} {clean(call.tool)}: {clean(_ending(call))}{ran}, "
        f"{clean(agent_of(call))} in {clean(call.directory)}"
    )


def _ending(call: CallInfo) -> str:
    outcome = outcome_of(call)
    if outcome is None:
        return call.state
    return f"{outcome.kind.value} ({outcome.cause})" if outcome.cause else outcome.kind.value


def agent_of(call: CallInfo) -> str:
    """Return who called: the program, and its agent where that is not its main one."""
    return f"{call.agent}/{call.agent_name}" if call.agent_name not in ("", "main") else call.agent or "-"


def print_story(answer: op.GetCallResponse | WireMessage) -> None:
    from . import outcome_text

    call = answer.call
    facts: list[tuple[str, str]] = [
        ("call", call.call_id),
        ("tool", call.tool),
        ("state", _ending(call)),
        ("agent", agent_of(call)),
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
    outcome = outcome_of(call)
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


def _figures(facts: pb.Facts | WireMessage) -> Iterator[tuple[str, str]]:
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


def print_workers(answer: op.ListWorkersResponse | WireMessage, *, of_nodes: bool = False) -> None:
    """Print the workers as a table, MCP servers as another, and the files that none is started for; with their nodes, of several."""
    now = datetime.now(UTC)
    servers = [worker for worker in answer.workers if worker.server.name]
    others = [worker for worker in answer.workers if not worker.server.name]
    if others or not servers:
        _print_others(others, now, of_nodes=of_nodes)
    if servers:
        _print_servers(servers, now, below=bool(others), of_nodes=of_nodes)
    if answer.quarantined:
        print("\nIn quarantine; toolcell release TOOL lets one out:")
    for shut_out in answer.quarantined:
        why = shut_out.by or f"{len(shut_out.deaths)} deaths, the last of {shut_out.deaths[-1].cause}"
        where = f"{clean(shut_out.node)} " if of_nodes else ""
        print_prose(
            f"  {where}{shown_file(shut_out.path)}: {clean(why)}, {ago(time_of(shut_out.since), now)}"
        )


def _print_others(others: Sequence[op.WorkerInfo | WireMessage], now: datetime, *, of_nodes: bool) -> None:
    print_table(
        (*NODE[:of_nodes], "WORKER", "STATE", "SINCE", "PID", "MEMORY", "CALLS", "CALL", "FILE"),
        [
            (
                *((worker.node,) if of_nodes else ()),
                worker.worker_id,
                worker.state,
                ago(time_of(worker.since), now),
                str(worker.pid or "-"),
                format_bytes(worker.memory_bytes) if worker.memory_bytes else "-",
                str(worker.calls),
                worker.call_id or "-",
                worker.path,
            )
            for worker in others
        ],
        right=("PID", "MEMORY", "CALLS"),
        wrap=("FILE",),
        empty="There are no workers.",
    )


def _print_servers(
    servers: Sequence[op.WorkerInfo | WireMessage], now: datetime, *, below: bool, of_nodes: bool
) -> None:
    if below:
        print()
    print_table(
        (
            *NODE[:of_nodes],
            "SERVER",
            "STATE",
            "AGE",
            "PID",
            "MEMORY",
            "CALLS",
            "NOW",
            "SESSIONS",
            "STARTS",
            "DIRECTORY",
        ),
        [
            (
                *((worker.node,) if of_nodes else ()),
                worker.server.name,
                worker.state,
                ago(time_of(worker.started), now).removesuffix(" ago"),
                str(worker.pid or "-"),
                format_bytes(worker.memory_bytes) if worker.memory_bytes else "-",
                str(worker.calls),
                f"{worker.server.running}/{worker.server.places}",
                str(worker.server.sessions),
                str(worker.server.starts),
                worker.directory,
            )
            for worker in servers
        ],
        right=("PID", "MEMORY", "CALLS", "NOW", "SESSIONS", "STARTS"),
        wrap=("DIRECTORY",),
    )


def print_status(found: op.GetStatusResponse | WireMessage, terminal: Terminal) -> None:
    """Print what a daemon says of itself; that it is of another version, on `terminal`."""
    since = ago(time_of(found.started), datetime.now(UTC)).removesuffix(" ago")
    print(f"A daemon runs: process {found.pid}, {found.state} for {since}.")
    print_facts(_status(found), indent=2)
    if found.version != VERSION:
        terminal.note(f"This command is Toolcell {VERSION}. For a daemon of that version: toolcell stop\n")


def _status(found: op.GetStatusResponse | WireMessage) -> Iterator[tuple[str, str]]:
    yield "version", found.version
    yield "sessions", str(found.sessions)
    yield "calls", f"{found.calls} waiting or running, {found.calls_ended} ended"
    cells = f"{found.blanks} {'cell' if found.blanks == 1 else 'cells'} ready for more"
    yield "workers", f"{found.workers}, {cells}"
    if found.quarantined:
        yield "quarantine", f"{found.quarantined} tool files: toolcell ps"
    if found.HasField("drained"):
        yield "drained", f"by an operator{found.drained and ': '}{found.drained}; toolcell drain --off"
    for tool in found.disabled:
        since = ago(time_of(tool.since), datetime.now(UTC))
        reason = f"{tool.reason and ': '}{tool.reason}"
        yield "disabled", f"{tool.tool}, {since}{reason}; toolcell enable {tool.tool}"
    yield "memory", f"{format_bytes(found.memory_bytes)} of the daemon itself"
    yield "socket", found.socket
    quota = f" of at most {format_bytes(found.spill_quota_bytes)}" if found.spill_quota_bytes else ""
    yield "state", f"{found.state_directory} ({format_bytes(found.spill_bytes)}{quota} of outputs)"
    journal = "the journal: journalctl --user -u toolcelld"
    if found.records_fault:
        yield (
            "records",
            f"cannot be written, {found.records_lost} are lost: {clean(found.records_fault)}; see toolcell doctor",
        )
    elif found.records_bytes:
        lost = f", {found.records_lost} could not be written: toolcell doctor" if found.records_lost else ""
        yield "records", f"{format_bytes(found.records_bytes)}{lost}"
    for notice in found.notices:
        yield "notice", clean(notice.replace("\n", " "))
    yield "log", journal if found.log == "journal" else found.log or "where it was started"
    if found.HasField("log_level_until") and (until := time_of(found.log_level_until)):
        yield "log level", f"{found.log_level} until {until.astimezone():%Y-%m-%d %H:%M:%S}"
    yield "config", ", ".join(found.config_files) or "none: the defaults"
