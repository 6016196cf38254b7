"""Reads the calls of one stream, and puts together the arguments that come up in parts.

A call's first message says how many bytes there will be; chunks follow, of several calls in any
mixture. Every part is held to that number and to the contract's bounds as it arrives, so a client
that says one thing and sends another is told at the first byte too many. What it has under way
after that is dropped, because one refusal per call is enough.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls.request import Request
from toolcelld.config.resolution.settings import NO_LIMITS
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.rpc.messages.decoding import (
    ARGUMENTS_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    bad,
    check_length,
    decode_limits,
    too_large,
)

PART_BYTES_MAX: Final = 64 * 1024
"""Of arguments in one message: the contract's bound for the whole of it. A larger one would hold up the others."""
CALLS_MAX: Final = 8
"""Calls of one stream whose arguments are still coming; together they hold at most 128 MiB."""
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
REFUSED_MAX: Final = 64
"""Refused calls whose further chunks are passed over; with 8 at a time they are long through the line."""


@dataclass(frozen=True, slots=True)
class _Begun:
    request: Request
    size: int
    arguments: bytearray


class ArgumentReassembler:
    """What is under way on one stream."""

    def __init__(self, agent: str, hold: Callable[[int], None] = lambda _: None) -> None:
        """For one stream.

        Args:
            agent: The name of the agent.
            hold: Called with the bytes that begin to come, and with the same below zero when they are handed on or
                dropped; raises `Refusal` if there is no room.
        """
        self._agent = agent
        self._hold = hold
        # The mutable state: what has begun, and what was refused while more of it was on its way.
        self._begun: dict[str, _Begun] = {}
        self._refused: OrderedDict[str, None] = OrderedDict()

    def begin(self, call: pb.Call) -> Request | None:
        """What is asked for; None when chunks are to follow. Raises `Refusal`."""
        arguments, size = call.arguments, call.arguments_bytes
        there = len(arguments)
        if size > ARGUMENTS_BYTES_MAX:
            raise too_large("call.arguments", size)
        if there > PART_BYTES_MAX:
            raise _too_long("call.arguments", there)
        if call.call_id in self._begun:
            raise Refusal(
                RefusalReason.OUT_OF_ORDER,
                f"the arguments of call {call.call_id} are still coming; send the rest of them.",
                field="call.call_id",
            )
        if size and size < there:
            raise _contradicted(call)
        request = decode_call(call, arguments, self._agent)
        self._refused.pop(request.call_id, None)
        if size <= there:
            return request
        if len(self._begun) >= CALLS_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"the arguments of {CALLS_MAX} calls are still coming.",
                retry_seconds=1,
                quota=f"calls whose arguments are coming: {CALLS_MAX}",
            )
        self._hold(size)
        self._begun[call.call_id] = _Begun(request, size, bytearray(arguments))
        return None

    def add(self, chunk: pb.Chunk) -> Request | None:
        """What is asked for, when this was the last chunk of it. Raises `Refusal`."""
        begun = self._begun.get(chunk.call_id)
        if begun is None:
            if chunk.call_id in self._refused:
                return None
            raise Refusal(
                RefusalReason.OUT_OF_ORDER,
                f"a chunk for call {chunk.call_id[:128]!r}, which expects none.",
                field="chunk.call_id",
            )
        if len(chunk.data) > PART_BYTES_MAX:
            raise _too_long("chunk.data", len(chunk.data))
        begun.arguments.extend(chunk.data)
        size = len(begun.arguments)
        if size > begun.size or (chunk.last and size < begun.size):
            raise BadRequest(
                f"chunk.data: {size} bytes of arguments, where call.arguments_bytes said {begun.size}.",
                field="chunk.data",
            )
        if size < begun.size:
            return None
        del self._begun[chunk.call_id]
        self._hold(-begun.size)
        return begun.request._replace(arguments=bytes(begun.arguments))

    def drop(self, call_id: str) -> None:
        """Forget what has come of a call, and pass over what still comes: it was aborted, or refused."""
        if (begun := self._begun.pop(call_id, None)) is not None:
            self._hold(-begun.size)
        self._refused[call_id] = None
        if len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)

    def close(self) -> None:
        """Drop everything: the stream has ended."""
        for begun in list(self._begun.values()):
            self._hold(-begun.size)
        self._begun.clear()


def complete(call: pb.Call, agent: str) -> Request:
    """What a call asks for that no chunk can follow. Raises `Refusal`."""
    if call.arguments_bytes not in (0, len(call.arguments)):
        raise _contradicted(call)
    return decode_call(call, call.arguments, agent)


def decode_call(wire: pb.Call, arguments: bytes, agent: str = "") -> Request:
    """A call. Raises `Refusal` naming the field."""
    call_id = wire.call_id
    if _CALL_ID.fullmatch(call_id) is None:
        raise bad("call.call_id", f"1 to 128 of A-Z a-z 0-9 _ . : -, got {call_id[:40]!r}")
    if not wire.tool:
        raise bad("call.tool", "the name of a tool")
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
        raise bad("call.traceparent", f"a W3C trace context, 00-…-…-01, got {request.traceparent[:60]!r}")
    return request


def _contradicted(call: pb.Call) -> Refusal:
    return BadRequest(
        f"call.arguments_bytes: {call.arguments_bytes}, where call.arguments has {len(call.arguments)}.",
        field="call.arguments_bytes",
    )


def _too_long(field: str, size: int) -> Refusal:
    return Refusal(
        RefusalReason.TOO_LARGE,
        f"{field}: {size} bytes in one message, more than {PART_BYTES_MAX}; send them in chunks of 48 KiB.",
        field=field,
    )
