"""Outcomes of messages: of protobuf's, or of `wire.WireMessage`s, which have the same attributes.

Every message becomes a frozen value, and nothing of protobuf leaves the client; who holds an Outcome does not hold the
64 KiB message that it came in.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from toolcell.client.outcome import (
    NOT_UNDONE,
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

from .json_values import decode

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from toolcell.client._grpc.wire import WireMessage
    from toolcell.client.errors import Refusal
    from toolcell_proto.v1 import toolcell_pb2 as pb

T = TypeVar("T")

KINDS: Mapping[int, Kind] = {
    1: Kind.ok,
    2: Kind.tool_error,
    3: Kind.invalid_arguments,
    4: Kind.denied,
    5: Kind.aborted,
    6: Kind.timed_out,
    7: Kind.limit_exceeded,
    8: Kind.crashed,
    9: Kind.internal,
}
"""By the numbers of OutcomeKind; a test holds both together."""
STOPPED: Mapping[int, Stopped] = {1: "settled", 2: "killed", 3: "best_effort", 4: "unconfirmed"}
"""By the numbers of the enum Stopped."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_outcome(message: pb.Outcome | WireMessage, body: bytes, facts: Callable[[], Facts]) -> Outcome:
    """How a call ended; `body` is the message's own with all its chunks. `facts` is called when they are first accessed."""
    try:
        content, details, structured = read_body(body)
        metadata: Mapping[str, Any] = decode(encoded) if (encoded := message.metadata) else {}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Outcome(
            Kind.internal,
            "unreadable_result",
            f"The daemon sent a result that cannot be read: {error}",
            ran=message.ran,
            facts=facts(),
            side_effects_possible=message.ran,
        )
    values = {
        "kind": KINDS.get(message.kind, Kind.internal),
        "cause": message.cause or None,
        "message": message.message,
        "content": content,
        "details": details,
        "metadata": metadata,
        "output": _read_output(message.output) if message.HasField("output") else None,
        "ran": message.ran,
        "stopped": STOPPED.get(message.stopped),
        "side_effects_possible": message.side_effects_possible,
        "structured": structured,
        "notes": tuple(message.notes[:]),  # a list, as the end of the other kind of iteration is an exception
    }
    return Outcome.decoded(values, facts)


def refused(refusal: Refusal) -> Outcome:
    """A refusal of a call, as the Outcome that the call ends with."""
    message = f"{refusal.message}\n  {refusal.remedy}" if refusal.remedy else refusal.message
    return Outcome(Kind.refused, refusal.reason, message)


def lost(message: str, reason: str, *, sent: bool) -> Outcome:
    """The outcome of a call whose own is lost with the connection; `sent` says that the daemon may have had the call.

    `reason` is that of the refusal that ended the stream; "" if there was none.
    """
    return Outcome(
        Kind.internal,
        "superseded" if reason == "superseded" else "connection_lost",
        f"{message}\n{NOT_UNDONE}" if sent else message,
        ran=sent,
        side_effects_possible=sent,
    )


def silent(limit_seconds: float) -> Outcome:
    """The outcome of a call that is past its limit, where the daemon does not answer at all."""
    message = (
        f"The call's limit of {limit_seconds:g} s is over, and the daemon does not answer: its process may be stopped. "
        "kill -CONT lets it go on, and kill -KILL ends it; the next call starts another."
    )
    return lost(message, "", sent=True)


def read_body(body: bytes) -> tuple[tuple[Block, ...], Any, bool]:
    """The blocks, the details, and whether these fit the tool's output schema."""
    if not body:
        return (), None, False
    value = decode(body)
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


def read_facts(facts: pb.Facts | WireMessage) -> Facts:
    """The measurements of a call."""
    return same_fields(
        Facts,
        facts,
        logs=tuple(_read_output(log) for log in facts.logs),
        refused_hosts=tuple(facts.refused_hosts),
        moved_aside=tuple(facts.moved_aside),
    )


def _read_output(output: pb.Output | WireMessage) -> Output:
    expires = _read_time(output.expires) if output.HasField("expires") else None
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


def same_fields(kind: Callable[..., T], message: Message | WireMessage, **others: object) -> T:
    """A dataclass of a message's fields, which have the same names; `others` are those that are read otherwise."""
    names = [each.name for each in fields(kind) if each.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(message, name) for name in names}, **others)


def _read_time(time: Timestamp | WireMessage) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanos // 1000)
    except OverflowError:  # of no daemon of ours
        return None
