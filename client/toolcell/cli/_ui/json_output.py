"""What `--json` prints of the daemon's messages: their fields by name, absent is null, times are RFC 3339.

A call's outcome and an output that was cut look as they do in `toolcell.client`, the same wherever they are printed.
`output.schema.json` beside this module is the promise; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toolcell.client._transport.messages import read_catalog, read_outcome
from toolcell.client.catalog import Problem, ToolInfo
from toolcell_proto.v1 import toolcell_pb2 as pb

from .format import time_of

# Empty is what they say; of any other string it is "there is none"
TEXTS: Final = frozenset({"text", "message"})
NUMBERS_FROM_ONE: Final = frozenset({"pid", "keeper_pid", "line"})  # 0 is "there is none"


def record(message: Message) -> dict[str, Any]:
    """A message as JSON has it."""
    return {field.name: _value(message, field.name) for field in message.DESCRIPTOR.fields}


def tool(item: ToolInfo) -> dict[str, Any]:
    """A tool as JSON has it."""
    return asdict(item) | {"source": item.source}


def problem(item: Problem | pb.Problem) -> dict[str, Any]:
    """A problem as JSON has it."""
    if isinstance(item, pb.Problem):
        (item,) = read_catalog([pb.CatalogPart(problems=[item])]).problems
    return asdict(item) | {"tool": item.tool or None}


def output_record(item: pb.Output) -> dict[str, Any]:
    """An output that was cut, as an Outcome shows it."""
    output = read_outcome(pb.Outcome(output=item), b"").output
    assert output is not None
    return output.to_dict()


def _value(message: Message, name: str) -> Any:
    value = getattr(message, name)
    if isinstance(value, pb.Outcome):
        return read_outcome(value, b"").to_dict() if message.HasField(name) else None
    if isinstance(value, Timestamp):
        time = time_of(value)
        return time.isoformat().replace("+00:00", "Z") if time else None
    if isinstance(value, Message):
        return record(value) if message.HasField(name) else None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, str]", value))
    if isinstance(value, str):
        return value if value or name in TEXTS else None
    if isinstance(value, int | float):
        return None if not value and name in NUMBERS_FROM_ONE else value
    return [record(item) if isinstance(item, Message) else item for item in value]
