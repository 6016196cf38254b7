"""What comes down a session's streams: seen once, put together, and then acknowledged.

A session outlives its streams, and so does its inbox: after a drop the daemon sends again what was not
acknowledged, and what had been seen is recognised by its number.
A result longer than one message comes as a head and chunks. Its head is not acknowledged before its last chunk
is there, so that a client that dies in between finds the whole of it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolcell_proto.v1 import toolcell_pb2 as pb

BEGINNINGS = frozenset(("accepted", "started"))  # some bytes each, and an outcome follows

# The contract's 16 MiB of result, and as much again for JSON around it. What is longer is no longer JSON here,
# and its call ends with `unreadable_result`.
BODY_BYTES_MAX = 32 * 1024 * 1024


Whole: TypeAlias = tuple[str | None, pb.Event, bytes]
"""The sort of an event (the field of its `oneof`), the event, and its whole body; empty for an event without one."""


@dataclass(slots=True)
class _Body:
    sort: str
    head: pb.Event
    data: bytearray


class ReceiveBuffer:
    """The events of a session, each once, in order, with their bodies whole.

    Attributes:
        more_than_beginnings: Whether there are such among the events that were received and not acknowledged.
    """

    __slots__ = ("_bodies", "_last", "_told", "more_than_beginnings")

    def __init__(self) -> None:
        self._last = 0  # the highest number seen
        self._told = 0  # the highest number acknowledged
        self._bodies: dict[str, _Body] = {}  # by call: heads whose chunks are coming
        self.more_than_beginnings = False

    def take(self, event: pb.Event) -> Whole | None:
        """The event with its sort and its body, once both are here; None for what is old or not yet whole."""
        if number := event.number:
            if number <= self._last:
                return None
            self._last = number
        sort = event.WhichOneof("event")
        if sort not in BEGINNINGS:
            self.more_than_beginnings = True
        if sort == "outcome":
            head: pb.Outcome | pb.Update = event.outcome
        elif sort == "update":
            head = event.update
        elif sort == "chunk":
            return self._chunk(event.chunk)
        else:
            return sort, event, b""
        if head.more:
            self._bodies[event.call_id] = _Body(sort, event, bytearray(head.body))
            return None
        if self._bodies:
            self._bodies.pop(event.call_id, None)  # an update that was given up half way
        return sort, event, head.body

    def acknowledge(self) -> int:
        """The number to tell the daemon with the next message."""
        self.more_than_beginnings = False
        self._told = self._dealt_with() if self._bodies else self._last
        return self._told

    @property
    def owes(self) -> bool:
        """Whether the daemon keeps something that it need not."""
        return self._dealt_with() > self._told

    def restart(self) -> None:
        """Another daemon counts from 1 again."""
        self._last = self._told = 0
        self._bodies.clear()

    def _dealt_with(self) -> int:
        if self._bodies:
            return min(body.head.number for body in self._bodies.values()) - 1
        return self._last

    def _chunk(self, chunk: pb.Chunk) -> Whole | None:
        body = self._bodies.get(chunk.call_id)
        if body is None:
            return None
        if len(body.data) + len(chunk.data) <= BODY_BYTES_MAX:
            body.data += chunk.data
        if not chunk.last:
            return None
        del self._bodies[chunk.call_id]
        return body.sort, body.head, bytes(body.data)
