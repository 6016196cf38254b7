"""Values to messages of protobuf and back; `_grpc.wire` reads and writes the few messages of the quick command.

Every message becomes a frozen value, and nothing of protobuf leaves the client. JSON is read and written by
`json_values`, outcomes by `outcomes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from toolcell.client import events
from toolcell.client.catalog import Catalog, Problem, ToolInfo
from toolcell.client.outcome import Facts, Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

from . import outcomes
from .json_values import read_json


def read_outcome(message: pb.Outcome, body: bytes) -> Outcome:
    """How a call ended; `body` is the message's own with all its chunks."""
    return outcomes.read_outcome(message, body, partial(_read_facts, message.facts.SerializeToString()))


def _read_facts(encoded: bytes) -> Facts:
    return outcomes.read_facts(pb.Facts.FromString(encoded))


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
                content, details, _ = outcomes.read_body(body or event.update.body)
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


def read_catalog(parts: Iterable[pb.CatalogPart]) -> Catalog:
    """A catalog from all its parts."""
    generation = pending = 0
    tools: dict[str, ToolInfo] = {}
    problems: list[Problem] = []
    for part in parts:
        generation, pending = part.generation, part.pending
        for tool in part.tools:
            tools[tool.name] = outcomes.same_fields(
                ToolInfo,
                tool,
                input_schema=read_json(tool.input_schema) or {"type": "object"},
                output_schema=_read_schema(tool.output_schema),
                destructive=tool.destructive if tool.HasField("destructive") else None,
                network=tool.network if tool.HasField("network") else None,
            )
        problems += [Problem(p.path, p.tool, p.reason, p.message, p.line or None) for p in part.problems]
    return Catalog(generation, tools, tuple(problems), pending)


def _read_schema(data: bytes) -> dict[str, Any] | None:
    schema = read_json(data)
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else None
