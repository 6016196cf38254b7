"""Values to messages and back: the only module of the client that reads the contract's fields.

Up: arguments are encoded strictly, before anything is sent, so that a mistake is raised where it was made
(`json.dumps` alone would send NaN, which no other language reads, and half of a surrogate pair, which is no UTF-8).
Down: every message becomes a frozen value, and nothing of protobuf leaves the client; who holds an Outcome
does not hold the 64 KiB message that it came in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolcell.client import events
from toolcell.client.catalog import Catalog, Problem, ToolInfo
from toolcell.client.outcome import (
    Block,
    Facts,
    FileData,
    ImageData,
    Kind,
    Outcome,
    Output,
    ResourceLink,
    Stopped,
    Text,
)
from toolcell_proto.v1 import toolcell_pb2 as pb

if TYPE_CHECKING:
    from toolcell.client.errors import Refusal

__all__ = [
    "encode_arguments",
    "read_catalog",
    "read_event",
    "read_json",
    "read_outcome",
    "refused",
]

_DECODER = json.JSONDecoder()  # `json.loads` would guess the encoding of each body
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_KINDS: dict[int, Kind] = {
    number: Kind(name.removeprefix("OUTCOME_KIND_").lower())
    for name, number in pb.OutcomeKind.items()
    if number != pb.OUTCOME_KIND_UNSPECIFIED
}
_STOPPED: dict[int, Stopped] = {
    pb.STOPPED_SETTLED: "settled",
    pb.STOPPED_KILLED: "killed",
    pb.STOPPED_BEST_EFFORT: "best_effort",
}


def encode_arguments(tool: str, arguments: Mapping[str, object] | None) -> bytes:
    """The arguments as JSON; TypeError or ValueError says why they are none."""
    if not arguments:
        return b""  # the contract's short form of {}
    try:
        return _ENCODER.encode(arguments if type(arguments) is dict else dict(arguments)).encode()
    except TypeError as error:
        raise TypeError(f"the arguments of {tool!r} are not JSON: {error}") from error
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise ValueError(
            f"the arguments of {tool!r} hold half a surrogate pair, {broken!r}, which is no text"
        ) from error
    except ValueError as error:  # NaN, an infinity, a value that holds itself
        raise ValueError(f"the arguments of {tool!r} are not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"the arguments of {tool!r} are nested too deeply to be JSON") from error


def read_outcome(message: pb.Outcome, body: bytes) -> Outcome:
    """How a call ended; `body` is the message's own with all its chunks."""
    try:
        content, details, structured = _read_body(body)
        metadata: Mapping[str, Any] = json.loads(message.metadata) if message.metadata else {}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Outcome(
            Kind.internal,
            "unreadable_result",
            f"The daemon sent a result that cannot be read: {error}",
            ran=message.ran,
            facts=_read_facts(message.facts.SerializeToString()),
            side_effects_possible=message.ran,
        )
    return Outcome(
        kind=_KINDS.get(message.kind, Kind.internal),
        cause=message.cause or None,
        message=message.message,
        content=content,
        details=details,
        metadata=metadata,
        output=_read_output(message.output) if message.HasField("output") else None,
        ran=message.ran,
        stopped=_STOPPED.get(message.stopped),
        side_effects_possible=message.side_effects_possible,
        structured=structured,
        notes=tuple(message.notes),
    ).decode_facts_later(partial(_read_facts, message.facts.SerializeToString()))


def refused(refusal: Refusal) -> Outcome:
    """A refusal of a call, as the Outcome that the call ends with."""
    message = f"{refusal.message}\n  {refusal.remedy}" if refusal.remedy else refusal.message
    return Outcome(Kind.refused, refusal.reason, message)


def read_event(event: pb.Event, body: bytes = b"") -> events.Event | None:
    """What a call says; None for what is not shown to its caller. `body` is an update's own with all its chunks."""
    match event.WhichOneof("event"):
        case "log":
            return events.Log(event.log.level, cast("Any", event.log.source), event.log.text)
        case "progress":
            total = event.progress.total if event.progress.HasField("total") else None
            return events.Progress(event.progress.done, total, event.progress.message)
        case "update":
            try:
                content, details, _ = _read_body(body or event.update.body)
            except (ValueError, TypeError, KeyError, RecursionError):
                return events.Gap(1)
            return events.Update(content, details)
        case "started":
            return events.Started(event.started.worker_id, event.started.queue_seconds)
        case "metadata":
            return events.Metadata(event.metadata.title, read_json(event.metadata.values) or {})
        case "gap":
            return events.Gap(event.gap.count)
        case _:
            return None


def read_json(data: bytes) -> Any:
    """A JSON value that may be absent, or in bad hands unreadable: both are None."""
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None


def read_catalog(parts: Iterable[pb.CatalogPart]) -> Catalog:
    """A catalog from all its parts."""
    generation = pending = 0
    tools: dict[str, ToolInfo] = {}
    problems: list[Problem] = []
    for part in parts:
        generation, pending = part.generation, part.pending
        for tool in part.tools:
            tools[tool.name] = ToolInfo(
                tool.name,
                tool.description,
                read_json(tool.input_schema) or {"type": "object"},
                tool.scope,
                tool.path,
                tool.read_only,
                tool.destructive if tool.HasField("destructive") else None,
                tool.idempotent,
                tool.network if tool.HasField("network") else None,
                plugin=tool.plugin,
                overrides_builtin=tool.overrides_builtin,
                title=tool.title,
                ends_turn=tool.ends_turn,
                output_schema=_read_schema(tool.output_schema),
            )
        problems += [Problem(p.path, p.tool, p.reason, p.message, p.line or None) for p in part.problems]
    return Catalog(generation, tools, tuple(problems), pending)


def _read_schema(data: bytes) -> dict[str, Any] | None:
    schema = read_json(data)
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else None


def _read_body(body: bytes) -> tuple[tuple[Block, ...], Any, bool]:
    """The blocks, the details, and whether these fit the tool's output schema."""
    if not body:
        return (), None, False
    value = _DECODER.decode(body.decode())
    content = tuple([_read_block(block) for block in value.get("content", ())])
    return content, value.get("details"), value.get("structured") is True


def _read_block(block: dict[str, Any]) -> Block:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "image":
            return ImageData(base64.b64decode(block["data"]), block["mime_type"])
        case "file":
            return FileData(base64.b64decode(block["data"]), block["mime_type"], block["name"])
        case "resource_link":
            return ResourceLink(block["uri"], block.get("name"), block.get("mime_type"))
        case other:
            raise ValueError(
                f"a content block of the unknown type {other!r}; is this client older than the daemon?"
            )


def _read_facts(encoded: bytes) -> Facts:
    facts = pb.Facts.FromString(encoded)
    return Facts(
        facts.queue_seconds,
        facts.run_seconds,
        facts.cpu_seconds,
        facts.memory_peak_bytes,
        facts.output_bytes,
        facts.spilled_bytes,
        facts.worker_id,
        facts.generation,
        facts.leftover_processes,
        facts.leftover_threads,
        facts.state_lost,
        facts.stop_seconds,
        facts.killed_processes,
        tuple(_read_output(log) for log in facts.logs),
        tuple(facts.refused_hosts),
        tuple(facts.moved_aside),
    )


def _read_output(output: pb.Output) -> Output:
    expires = output.expires.ToDatetime(tzinfo=UTC) if output.HasField("expires") else None
    return Output(
        output.output_id,
        output.total_bytes,
        output.total_lines,
        output.kept_bytes,
        output.complete,
        expires,
        output.source,
        output.reason,
    )
