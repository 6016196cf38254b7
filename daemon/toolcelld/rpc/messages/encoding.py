"""Writes the daemon's values as messages of the contract."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toolcell_proto.v1 import operator_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls import events
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.outcomes.outcome import NONE_RARE, RARE, Outcome
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.problem import Problem
from toolcelld.output.spill import KeptOutput
from toolcelld.pool.worker import Worker
from toolcelld.rpc.messages.refusals import encode_refusal
from toolcelld.sessions.session import Session

PROBLEMS_MAX: Final = 100
"""Of one catalog in a session's stream; `toolcell check` reads them all."""
PROBLEMS_LETTERS_MAX: Final = 40_000
"""Of all their messages together: a few are whole, and of a hundred each has its cause and the first of what to do."""
PART_BYTES: Final = 48 * 1024
"""Of the offers in one message of at most 64 KiB; one of them has less than the rest."""
OFFER_BYTES: Final = 4
"""Around each offer in a message."""

M = TypeVar("M", bound=Message)

_KINDS: Final = {
    value.name.removeprefix("OUTCOME_KIND_").lower(): value.number
    for value in pb.OutcomeKind.DESCRIPTOR.values
}
_STOPPED: Final = {
    value.name.removeprefix("STOPPED_").lower(): value.number for value in pb.Stopped.DESCRIPTOR.values
}


def timestamp(seconds: float) -> Timestamp:
    """The wire's time."""
    whole, nanos = _split(seconds)
    return Timestamp(seconds=whole, nanos=nanos)


def _split(seconds: float) -> tuple[int, int]:
    whole = math.floor(seconds)
    return whole, int((seconds - whole) * 1e9)


def copied(kind: type[M], value: object, **others: Any) -> M:
    """Return a message with what a value has under the names of its fields; each field that it does not have has to be given."""
    names = [field.name for field in kind.DESCRIPTOR.fields if field.name not in others]
    return kind(**{name: getattr(value, name) for name in names}, **others)


def encode_event(event: events.Event, wire: pb.Event) -> None:
    """Write an event of a session where it is to stand: what is made first and put there later is copied."""
    wire.number, wire.call_id = event.number, event.call_id
    time = wire.time
    time.seconds = seconds = int(event.time)  # after 1970, so that this is the floor
    time.nanos = int((event.time - seconds) * 1e9)
    match event:
        case events.CallEnded(outcome=outcome, body=body, more=more):
            ended = wire.outcome
            _fill_outcome(ended, outcome)
            ended.body = body
            ended.more = more
        case events.CallAccepted(queued=queued):
            wire.accepted.queued = queued
        case events.CallStarted(
            worker_id=worker_id, queue_seconds=queue_seconds, timeout_seconds=timeout_seconds
        ):
            wire.started.worker_id = worker_id
            wire.started.queue_seconds = queue_seconds
            wire.started.timeout_seconds = timeout_seconds
        case events.PartialResult(body=body, more=more):
            wire.update.body = body
            wire.update.more = more
        case events.ProgressMade(done=done, total=total, message=message):
            wire.progress.CopyFrom(pb.Progress(done=done, total=total, message=message))
        case events.MetadataSet(title=title, values=values):
            wire.metadata.title = title
            wire.metadata.values = values
        case events.LineLogged(level=level, source=source, text=text):
            wire.log.CopyFrom(pb.Log(level=level, source=source, text=text))
        case events.ServiceRequested(ask_id=ask_id, service=service, arguments=arguments):
            wire.request.CopyFrom(pb.Request(ask_id=ask_id, service=service, arguments=arguments))
        case events.QuestionAsked(ask_id=ask_id, question=question, details=details):
            wire.ask.CopyFrom(pb.Ask(ask_id=ask_id, details=details, **question))
        case events.Chunk(data=data, last=last):
            wire.chunk.CopyFrom(pb.Chunk(call_id=event.call_id, data=data, last=last))
        case events.CallRefused(refusal=refusal):
            wire.refused.CopyFrom(encode_refusal(refusal))
        case events.EventsDropped(count=count):
            wire.gap.count = count
        case events.CatalogChanged() | events.Published() | events.Moving():
            _encode_of_session(event, wire)
        case _:
            raise TypeError(f"{event!r} has no place on the wire")


def _encode_of_session(
    event: events.CatalogChanged | events.Published | events.Moving, wire: pb.Event
) -> None:
    match event:
        case events.Moving(reason=reason, deadline_seconds=deadline_seconds):
            wire.moving.reason = reason
            wire.moving.deadline_seconds = deadline_seconds
        case events.CatalogChanged(generation=generation):
            wire.catalog_changed.generation = generation
        case events.Published(catalog=catalog, start=start, end=end, last=last, answers=answers):
            wire.catalog.CopyFrom(catalog_part(catalog, start, end, last=last))
            wire.catalog.answers = answers


def _fill_outcome(wire: pb.Outcome, outcome: Outcome) -> None:
    """Write an outcome. What is empty is left out, as to set a field takes ten times as long as to look."""
    wire.kind = _KINDS[outcome.kind]  # type: ignore[assignment]  # the enum's number
    if outcome.cause:
        wire.cause = outcome.cause
    if outcome.message:
        wire.message = outcome.message
    if outcome.metadata:
        wire.metadata = outcome.metadata
    if outcome.output is not None:
        wire.output.CopyFrom(encode_output(outcome.output))
    if outcome.ran:
        wire.ran = outcome.ran
    if outcome.stopped is not None:
        wire.stopped = _STOPPED[outcome.stopped]  # type: ignore[assignment]  # the enum's number
    if outcome.side_effects_possible:
        wire.side_effects_possible = outcome.side_effects_possible
    if outcome.notes:
        wire.notes.extend(outcome.notes)
    facts, wire_facts = outcome.facts, wire.facts
    wire_facts.queue_seconds = facts.queue_seconds
    wire_facts.run_seconds = facts.run_seconds
    wire_facts.cpu_seconds = facts.cpu_seconds
    wire_facts.memory_peak_bytes = facts.memory_peak_bytes
    wire_facts.output_bytes = facts.output_bytes
    if facts.spilled_bytes:
        wire_facts.spilled_bytes = facts.spilled_bytes
    wire_facts.worker_id = facts.worker_id
    wire_facts.generation = facts.generation
    if facts[RARE] == NONE_RARE:
        return
    wire_facts.leftover_processes = facts.leftover_processes
    wire_facts.leftover_threads = facts.leftover_threads
    wire_facts.state_lost = facts.state_lost
    wire_facts.stop_seconds = facts.stop_seconds
    wire_facts.killed_processes = facts.killed_processes
    if facts.fence:
        wire_facts.node, wire_facts.fence = facts.node, facts.fence
    if facts.moved_aside:
        wire_facts.moved_aside.extend(facts.moved_aside)
    for output in facts.logs:
        wire_facts.logs.append(encode_output(output))
    wire_facts.refused_hosts.extend(facts.refused_hosts)


def encode_output(output: KeptOutput) -> pb.Output:
    """What is kept of an output that was cut."""
    expires = timestamp(output.expires) if output.expires is not None else None
    return copied(pb.Output, output, output_id=output.handle, expires=expires, source=output.origin.source)


def catalog_part(catalog: Catalog, start: int, end: int, *, last: bool) -> pb.CatalogPart:
    """Some of a catalog's tools; the problems go with the last."""
    tools = list(catalog.tools.values())[start:end]
    return pb.CatalogPart(
        generation=catalog.generation,
        tools=[encode_tool(tool) for tool in tools],
        problems=_problems(catalog.problems[:PROBLEMS_MAX]) if last else [],
        last=last,
        pending=max(catalog.pending, int(catalog.is_partial)) if last else 0,
    )


def encode_tool(tool: ToolInfo) -> pb.Tool:
    """A tool as clients see it."""
    return copied(pb.Tool, tool)


def encode_offers(catalog: Catalog) -> Iterator[pb.ListOffersResponse]:
    """What the servers of a catalog offer beside tools, in parts."""
    part, size = pb.ListOffersResponse(), 0
    for door in catalog.doors.values():
        for offer in door.offers or ():
            encoded = copied(
                pb.Offer,
                offer,
                tool=door.name,
                path=door.path,
                size_bytes=offer.size,
                arguments=[copied(pb.OfferArgument, argument) for argument in offer.arguments],
            )
            size += encoded.ByteSize() + OFFER_BYTES
            if size > PART_BYTES and part.offers:
                yield part
                part, size = pb.ListOffersResponse(), encoded.ByteSize() + OFFER_BYTES
            part.offers.append(encoded)
    yield part


def encode_problem(problem: Problem) -> pb.Problem:
    """What cannot be used, and why."""
    return copied(pb.Problem, problem)


def _problems(problems: Sequence[Problem]) -> list[pb.Problem]:
    letters_max = PROBLEMS_LETTERS_MAX // max(len(problems), 1)
    return [
        encode_problem(replace(problem, message=whole_lines(problem.message, letters_max)))
        for problem in problems
    ]


def whole_lines(text: str, letters_max: int) -> str:
    """Return the first lines of a text that fit, as a line that is cut may be a command; the first is cut if it has to be."""
    if len(text) <= letters_max:
        return text
    end = text.rfind("\n", 0, letters_max + 1)
    return text[:end] if end > 0 else text[: letters_max - 1] + "…"


def encode_session(session: Session) -> operator_pb2.SessionInfo:
    """A session, for lists."""
    return operator_pb2.SessionInfo(
        session_id=session.id,
        state=session.state.value,
        agent=session.agent,
        directory=session.directory,
        opened=timestamp(session.opened_at),
        calls=len(session.calls),
        generation=session.catalog.generation,
        calls_ended=session.calls_ended,
        retained_bytes=max(session.outbox.retained_bytes, 0),
    )


def encode_worker(
    worker: Worker, memory_bytes: int = 0, server: operator_pb2.ServerUse | None = None
) -> operator_pb2.WorkerInfo:
    """A worker, for lists, with the resident memory of its process, and how it is used if it is an MCP server."""
    spec = worker.spec
    return operator_pb2.WorkerInfo(
        worker_id=worker.id,
        state=worker.state.value,
        path=spec.file.path,
        pid=worker.pid,
        keeper_pid=worker.keeper_pid,
        calls=worker.calls,
        started=timestamp(worker.started_at),
        since=timestamp(worker.since),
        call_id=worker.call_id,
        session_id=spec.owner if spec.serial else "",
        isolation="session" if spec.serial and spec.owner else "call" if spec.fresh else "worker",
        memory_bytes=memory_bytes,
        directory=spec.directory,
        server=server,
    )


def call_info(call: CallSummary) -> pb.CallInfo:
    info = copied(
        pb.CallInfo,
        call,
        accepted=timestamp(call.accepted_at),
        refusal_reason=call.refusal[0],
        refusal=call.refusal[1],
        path=call.path.encode(errors="backslashreplace").decode(),
        ended=timestamp(call.story[-1][0]) if call.state == "ended" else None,
        outcome=None,
    )
    if call.outcome is not None:
        _fill_outcome(info.outcome, call.outcome)
    return info
