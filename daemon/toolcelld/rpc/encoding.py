"""Conversions between the daemon's values and the messages of the contract; only `rpc` and the server import this.

Longer than 400 lines because every message has its conversion here, so that a change of the contract is made in one file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    error_details_pb2,
    status_pb2,
)
from pydantic_core import from_json

from toolcell._results.json_value import whole
from toolcell._session_reasons import DATA_BYTES_MAX
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls import events
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.outcomes.outcome import Outcome
from toolcelld.calls.request import Request
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.problem import Problem
from toolcelld.config.resolution.settings import NO_LIMITS, Limits
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.output.spill import Output
from toolcelld.sessions.session import OpenRequest

__all__ = [
    "ARGUMENTS_BYTES_MAX", "PROTOCOL", "STATUS_CODES", "call_info", "catalog_part", "check_length", "decode_call",
    "decode_limits", "decode_open", "encode_event", "encode_output", "encode_refusal", "timestamp", "trailers",
]  # fmt: skip

PROTOCOL: Final = 1
ARGUMENTS_BYTES_MAX: Final = 16 * 1024 * 1024
NAME_CHARACTERS_MAX: Final = 256
"""Of ids and names that agents give us; they have some dozens."""
PATTERNS_MAX: Final = 1000
SERVICES_MAX: Final = 64
REPLY_BYTES_MAX: Final = 48 * 1024
"""Of what a request came to: it is one message up, as an answer is."""
LINGER_SECONDS_MAX: Final = 3600.0
METADATA_BYTES_MAX: Final = 1500
"""Of a refusal's message where it ends an RPC; there it stands up to four times. Of metadata of more than 8 KiB gRPC
refuses some at random, and then the client does not learn the reason."""
QUOTA_CHARACTERS_MAX: Final = 200

_SERVICE: Final = re.compile(r"[a-z0-9_.-]{1,64}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

STATUS_CODES: Final = {
    RefusalReason.UNKNOWN_TOOL: grpc.StatusCode.NOT_FOUND,
    RefusalReason.BROKEN_TOOL: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    RefusalReason.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalReason.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    RefusalReason.SESSION_CLOSED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.UNKNOWN_SESSION: grpc.StatusCode.NOT_FOUND,
    RefusalReason.UNKNOWN_CALL: grpc.StatusCode.NOT_FOUND,
    RefusalReason.UNKNOWN_OUTPUT: grpc.StatusCode.NOT_FOUND,
    RefusalReason.CALL_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    RefusalReason.SESSION_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    RefusalReason.WRONG_TOKEN: grpc.StatusCode.PERMISSION_DENIED,
    RefusalReason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    RefusalReason.VERSION_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.SUPERSEDED: grpc.StatusCode.ABORTED,
    RefusalReason.WOULD_DEADLOCK: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.OUT_OF_ORDER: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.DISABLED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NEEDS_GRANT: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.UNTRUSTED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NO_SANDBOX: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.QUARANTINED: grpc.StatusCode.FAILED_PRECONDITION,
}


_KINDS: Final = {
    value.name.removeprefix("OUTCOME_KIND_").lower(): value.number
    for value in pb.OutcomeKind.DESCRIPTOR.values
}
_STOPPED: Final = {
    value.name.removeprefix("STOPPED_").lower(): value.number for value in pb.Stopped.DESCRIPTOR.values
}


# Down


def timestamp(seconds: float) -> Timestamp:
    """The wire's time."""
    whole, nanos = _split(seconds)
    return Timestamp(seconds=whole, nanos=nanos)


def _split(seconds: float) -> tuple[int, int]:
    whole = math.floor(seconds)
    return whole, int((seconds - whole) * 1e9)


def trailers(refusal: Refusal) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """The message and the metadata that end an RPC with a refusal, small enough to arrive."""
    short = Refusal(
        refusal.reason,
        _of_metadata(refusal.message),
        field=refusal.field,
        retry_seconds=refusal.retry_seconds,
        quota=_of_metadata(refusal.quota)[:QUOTA_CHARACTERS_MAX],
    )
    return short.message, (("grpc-status-details-bin", encode_refusal(short).SerializeToString()),)


def _of_metadata(text: str) -> str:
    """As much of a text as metadata have room for: what is not plain ASCII takes three bytes for each of its own."""
    room = METADATA_BYTES_MAX
    text = whole(text[: room + 1])
    for index, character in enumerate(text):
        plain = " " <= character <= "~" and character != "%"
        room -= 1 if plain else 3 * len(character.encode())
        if room < 0:
            return text[:index] + "…"
    return text


def encode_refusal(refusal: Refusal) -> status_pb2.Status:
    """A refusal with its details: which field, when to come again, which bound."""
    message, quota = whole(refusal.message[:4000]), whole(refusal.quota)
    status = status_pb2.Status(code=STATUS_CODES[refusal.reason].value[0], message=message)
    details: list[
        error_details_pb2.ErrorInfo
        | error_details_pb2.BadRequest
        | error_details_pb2.RetryInfo
        | error_details_pb2.QuotaFailure
    ] = [error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain="toolcell")]
    if refusal.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=refusal.field, description=message[:1000]
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if refusal.retry_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(refusal.retry_seconds * 1e9))
        details.append(retry)
    if quota:
        failure = error_details_pb2.QuotaFailure.Violation(subject=quota, description=message[:1000])
        details.append(error_details_pb2.QuotaFailure(violations=[failure]))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def encode_event(event: events.Event, wire: pb.Event) -> None:
    """Write an event of a session where it is to stand: what is made first and put there later is copied."""
    wire.number, wire.call_id = event.number, event.call_id
    time = wire.time
    time.seconds = seconds = int(event.time)  # after 1970, so that this is the floor
    time.nanos = int((event.time - seconds) * 1e9)
    match event:
        case events.Ended(outcome=outcome, body=body, more=more):
            ended = wire.outcome
            _fill_outcome(ended, outcome)
            ended.body = body
            ended.more = more
        case events.Accepted(queued=queued):
            wire.accepted.queued = queued
        case events.Started(worker_id=worker_id, queue_seconds=queue_seconds):
            wire.started.worker_id = worker_id
            wire.started.queue_seconds = queue_seconds
        case events.Update(body=body, more=more):
            wire.update.body = body
            wire.update.more = more
        case events.Progress(done=done, total=total, message=message):
            wire.progress.CopyFrom(pb.Progress(done=done, total=total, message=message))
        case events.Metadata(title=title, values=values):
            wire.metadata.title = title
            wire.metadata.values = values
        case events.Logged(level=level, source=source, text=text):
            wire.log.CopyFrom(pb.Log(level=level, source=source, text=text))
        case events.Requested(ask_id=ask_id, service=service, arguments=arguments):
            wire.request.CopyFrom(pb.Request(ask_id=ask_id, service=service, arguments=arguments))
        case events.Asked(ask_id=ask_id, question=question, details=details):
            wire.ask.CopyFrom(pb.Ask(ask_id=ask_id, details=details, **question))
        case events.Chunk(data=data, last=last):
            wire.chunk.CopyFrom(pb.Chunk(call_id=event.call_id, data=data, last=last))
        case events.Refused(refusal=refusal):
            wire.refused.CopyFrom(encode_refusal(refusal))
        case events.Gap(count=count):
            wire.gap.count = count
        case events.CatalogChanged() | events.Published():
            _encode_catalog(event, wire)
        case _:
            raise TypeError(f"{event!r} has no place on the wire")


def _encode_catalog(event: events.CatalogChanged | events.Published, wire: pb.Event) -> None:
    match event:
        case events.CatalogChanged(generation=generation):
            wire.catalog_changed.generation = generation
        case events.Published(catalog=catalog, start=start, end=end, last=last, answers=answers):
            wire.catalog.CopyFrom(catalog_part(catalog, start, end, last=last))
            wire.catalog.answers = answers


def _fill_outcome(wire: pb.Outcome, outcome: Outcome) -> None:
    wire.kind = _KINDS[outcome.kind]  # type: ignore[assignment]  # the enum's number
    wire.cause = outcome.cause
    wire.message = outcome.message
    wire.metadata = outcome.metadata
    if outcome.output is not None:
        wire.output.CopyFrom(encode_output(outcome.output))
    wire.ran = outcome.ran
    if outcome.stopped is not None:
        wire.stopped = _STOPPED[outcome.stopped]  # type: ignore[assignment]  # the enum's number
    wire.side_effects_possible = outcome.side_effects_possible
    if outcome.notes:
        wire.notes.extend(outcome.notes)
    facts, wire_facts = outcome.facts, wire.facts
    wire_facts.queue_seconds = facts.queue_seconds
    wire_facts.run_seconds = facts.run_seconds
    wire_facts.cpu_seconds = facts.cpu_seconds
    wire_facts.memory_peak_bytes = facts.memory_peak_bytes
    wire_facts.output_bytes = facts.output_bytes
    wire_facts.spilled_bytes = facts.spilled_bytes
    wire_facts.worker_id = facts.worker_id
    wire_facts.generation = facts.generation
    wire_facts.leftover_processes = facts.leftover_processes
    wire_facts.leftover_threads = facts.leftover_threads
    wire_facts.state_lost = facts.state_lost
    wire_facts.stop_seconds = facts.stop_seconds
    wire_facts.killed_processes = facts.killed_processes
    if facts.moved_aside:
        wire_facts.moved_aside.extend(facts.moved_aside)
    for output in facts.logs:
        wire_facts.logs.append(encode_output(output))
    wire_facts.refused_hosts.extend(facts.refused_hosts)


def encode_output(output: Output) -> pb.Output:
    """What is kept of an output that was cut."""
    return pb.Output(
        output_id=output.handle,
        total_bytes=output.total_bytes,
        kept_bytes=output.kept_bytes,
        total_lines=output.total_lines,
        complete=output.complete,
        expires=timestamp(output.expires) if output.expires is not None else None,
        source=output.origin.source,
        reason=output.reason,
    )


def catalog_part(catalog: Catalog, start: int, end: int, *, last: bool) -> pb.CatalogPart:
    """Some of a catalog's tools; the problems go with the last."""
    tools = list(catalog.tools.values())[start:end]
    return pb.CatalogPart(
        generation=catalog.generation,
        tools=[encode_tool(tool) for tool in tools],
        problems=[encode_problem(problem, 400) for problem in catalog.problems[:PROBLEMS_MAX]]
        if last
        else [],
        last=last,
        pending=max(catalog.pending, catalog.is_partial) if last else 0,
    )


PROBLEMS_MAX: Final = 100
"""Of one catalog in a session's stream; `toolcell check` reads them all."""


def encode_tool(tool: ToolInfo) -> pb.Tool:
    """A tool as clients see it."""
    return pb.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        scope=tool.scope,
        path=tool.path,
        read_only=tool.read_only,
        destructive=tool.destructive,
        idempotent=tool.idempotent,
        network=tool.network,
        plugin=tool.plugin,
        overrides_builtin=tool.overrides_builtin,
        title=tool.title,
        ends_turn=tool.ends_turn,
        output_schema=tool.output_schema,
    )


def encode_problem(problem: Problem, message_characters_max: int | None = None) -> pb.Problem:
    """What cannot be used, and why."""
    return pb.Problem(
        path=problem.path,
        tool=problem.tool,
        reason=problem.reason,
        message=problem.message[:message_characters_max],
        line=problem.line,
    )


def call_info(call: CallSummary) -> pb.CallInfo:
    """A call, for lists."""
    info = pb.CallInfo(
        call_id=call.call_id,
        session_id=call.session_id,
        tool=call.tool,
        state=call.state,
        accepted=timestamp(call.accepted_at),
        worker_id=call.worker_id,
        agent=call.agent,
        agent_name=call.agent_name,
        directory=call.directory,
        agent_session_id=call.agent_session_id,
        message_id=call.message_id,
        refusal_reason=call.refusal[0],
        refusal=call.refusal[1],
    )
    if call.outcome is not None:
        _fill_outcome(info.outcome, call.outcome)
    return info


# Up


def decode_open(wire: pb.Open) -> OpenRequest:
    """What a client wants of a session. Raises `Refusal` naming the field."""
    if wire.protocol != PROTOCOL:
        raise Refusal(
            RefusalReason.VERSION_MISMATCH,
            f"the client speaks protocol {wire.protocol} (version {wire.client_version[:40] or 'unknown'}), this daemon "
            f"protocol {PROTOCOL}; install the same toolcell for both, then restart the daemon: toolcell restart --daemon.",
            field="open.protocol",
        )
    for name in ("agent", "session_id"):
        check_length(f"open.{name}", getattr(wire, name))
    for name in ("allow", "deny"):
        patterns: Sequence[str] = getattr(wire, name)
        if len(patterns) > PATTERNS_MAX:
            raise _bad(f"open.{name}", f"at most {PATTERNS_MAX} patterns, got {len(patterns)}")
        for pattern in patterns:
            check_length(f"open.{name}", pattern)
    if len(wire.services) > SERVICES_MAX:
        raise _bad("open.services", f"at most {SERVICES_MAX} services, got {len(wire.services)}")
    for service in wire.services:
        if _SERVICE.fullmatch(service) is None:
            raise _bad("open.services", f"1 to 64 of a-z 0-9 _ . -, got {service[:40]!r}")
    linger = wire.linger_seconds if wire.HasField("linger_seconds") else None
    if linger is not None and not 0 <= linger <= LINGER_SECONDS_MAX:
        raise _bad("open.linger_seconds", f"0 to {LINGER_SECONDS_MAX:.0f}, got {linger:g}")
    return OpenRequest(
        agent=wire.agent or "unknown",
        directory=wire.directory,
        allow=tuple(wire.allow),
        deny=tuple(wire.deny),
        linger_seconds=linger,
        answers=wire.answers,
        limits=decode_limits(wire.limits, "open.limits"),
        follow=wire.follow,
        services=frozenset(wire.services),
    )


def decode_reply(wire: pb.Reply) -> tuple[bytes, str]:
    """What a request came to: the result, empty for a failure, and then why. Raises `Refusal` naming the field."""
    if (size := len(wire.result)) > REPLY_BYTES_MAX:
        raise Refusal(
            RefusalReason.TOO_LARGE,
            f"reply.result: {size} bytes, more than {REPLY_BYTES_MAX}; answer with less, or with the path of a file.",
            field="reply.result",
        )
    if wire.result:
        try:
            from_json(wire.result, allow_inf_nan=False)
        except ValueError as error:
            raise _bad("reply.result", f"JSON, got something else: {str(error)[:80]}") from None
    return wire.result, wire.message or ("" if wire.result else "it failed, and did not say why")


def decode_session_event(wire: pb.SessionEvent) -> tuple[str, dict[str, Any], str]:
    """The reason, the data and the agent's session. Raises `Refusal` naming the field."""
    check_length("session_event.session_id", wire.session_id)
    if (size := len(wire.data)) > DATA_BYTES_MAX:
        raise Refusal(
            RefusalReason.TOO_LARGE,
            f"session_event.data: {size} bytes, more than {DATA_BYTES_MAX}; say less.",
            field="session_event.data",
        )
    try:
        data: object = from_json(wire.data or b"{}", allow_inf_nan=False)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise _bad("session_event.data", "a JSON object")
    return wire.reason, cast("dict[str, Any]", data), wire.session_id


def decode_call(wire: pb.Call, arguments: bytes, agent: str = "") -> Request:
    """A call. Raises `Refusal` naming the field."""
    call_id = wire.call_id
    if _CALL_ID.fullmatch(call_id) is None:
        raise _bad("call.call_id", f"1 to 128 of A-Z a-z 0-9 _ . : -, got {call_id[:40]!r}")
    if not wire.tool:
        raise _bad("call.tool", "the name of a tool")
    if len(arguments) > ARGUMENTS_BYTES_MAX:
        raise too_large("call.arguments", len(arguments))
    request = Request(
        call_id,
        wire.tool,
        arguments or b"{}",
        wire.session_id,
        wire.message_id,
        agent,
        wire.agent_name,
        decode_limits(wire.limits, "call.limits") if wire.HasField("limits") else NO_LIMITS,
        wire.traceparent,
        wire.parent_call_id,
    )
    if wire.ByteSize() - len(arguments) > NAME_CHARACTERS_MAX:  # only then can one text be that long
        for name, text in request._asdict().items():
            if isinstance(text, str):
                check_length(f"call.{name}", text)
    if request.traceparent and _TRACEPARENT.fullmatch(request.traceparent) is None:
        raise _bad("call.traceparent", f"a W3C trace context, 00-…-…-01, got {request.traceparent[:60]!r}")
    return request


def decode_limits(wire: pb.Limits, field: str) -> Limits:
    """Limits that a client lowers; what is not set says nothing. Raises `Refusal` naming the field."""
    if not wire.ByteSize():
        return NO_LIMITS
    given: dict[str, float | int] = {}
    for descriptor, value in wire.ListFields():
        if not value >= 0 or value == math.inf:
            raise _bad(f"{field}.{descriptor.name}", f"a number from 0, got {value}")
        if value:
            given[descriptor.name] = value
        elif descriptor.name in ("timeout_seconds", "queue_seconds"):
            given[descriptor.name] = 0.0
    return Limits(**given)  # type: ignore[arg-type]  # the fields have the types of the contract


def too_large(field: str, size: int) -> Refusal:
    """Arguments over the bound."""
    return Refusal(
        RefusalReason.TOO_LARGE,
        f"{field}: {size} bytes, more than the {ARGUMENTS_BYTES_MAX} (16 MiB) that a call may carry; pass a file's path instead.",
        field=field,
        quota=f"arguments: {ARGUMENTS_BYTES_MAX} bytes",
    )


def _bad(field: str, expected: str) -> Refusal:
    return Refusal(RefusalReason.BAD_REQUEST, f"{field}: expected {expected}.", field=field)


def check_length(field: str, value: str) -> None:
    """Refuse an id or a name that is none. Raises `Refusal` naming the field."""
    if len(value) > NAME_CHARACTERS_MAX:
        raise _bad(field, f"at most {NAME_CHARACTERS_MAX} characters, got {len(value)}")
