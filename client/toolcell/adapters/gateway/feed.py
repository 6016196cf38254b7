"""What the calls of a gateway tell, to all readers: one queue for each, bounded.

A reader that is too slow loses the oldest events and gets their number; a tool never waits for one.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from toolcell.client import Kind, Outcome

UNREAD_MAX = 1024
"""Events that wait for a reader."""
UNREAD_BYTES_MAX = 256 * 1024 * 1024
"""Of these events together, more than one call has: 16 MiB of arguments and of a result, in escapes of ASCII thrice that."""
QUIET_SECONDS = 15.0
"""After as long without an event a reader gets a comment, so that a closed connection is noticed."""

Name: TypeAlias = Literal[
    "tool_use", "message", "tool_result", "error", "completed", "tools", "gap", "state", "accepted", "question", "answered", "ended"
]  # fmt: skip


@dataclass(frozen=True)
class FeedEvent:
    """One event: its name, and its data as JSON values."""

    name: Name
    data: dict[str, Any]
    call_id: str = ""
    """The call that it is about; "" for events of the directory."""

    @cached_property
    def encoded(self) -> bytes:
        """The event as a server-sent one; made once for all readers."""
        return f"event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()

    @cached_property
    def size(self) -> int:
        """How many bytes that are; none if it cannot be written, which ends a reader and not the call."""
        try:
            return len(self.encoded)
        except RecursionError:
            return 0


class Reader:
    """The events that one reader has not read yet."""

    def __init__(self, wanted: Callable[[FeedEvent], bool]) -> None:
        self._wanted = wanted
        self._unread: deque[FeedEvent] = deque()
        self._bytes = 0  # of these
        self._lost = 0
        self._woken = asyncio.Event()

    def put(self, event: FeedEvent) -> None:
        """Add an event, if this reader wants it; a full queue drops its oldest message, or else its oldest event."""
        if not self._wanted(event):
            return
        self._unread.append(event)
        self._bytes += event.size
        while len(self._unread) > 1 and (len(self._unread) > UNREAD_MAX or self._bytes > UNREAD_BYTES_MAX):
            self._drop()
        self._woken.set()

    def _drop(self) -> None:
        """Drop the oldest event but the newest of all, a message if there is one."""
        places = range(len(self._unread) - 1)
        oldest = next((place for place in places if self._unread[place].name == "message"), 0)
        self._bytes -= self._unread[oldest].size
        del self._unread[oldest]
        self._lost += 1

    async def take(self) -> FeedEvent:
        """Wait for the next event; the number of dropped ones comes first."""
        while not self._unread:
            self._woken.clear()
            await self._woken.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return FeedEvent("gap", {"count": lost})
        event = self._unread.popleft()
        self._bytes -= event.size
        return event


class Feed:
    """All readers of a gateway."""

    def __init__(self) -> None:
        self._readers: set[Reader] = set()

    def put(self, event: FeedEvent) -> None:
        """Give an event to every reader."""
        for reader in self._readers:
            reader.put(event)

    @contextmanager
    def reader(self, wanted: Callable[[FeedEvent], bool] = lambda _: True) -> Generator[Reader]:
        """A reader of the events from now on; default: of all."""
        reader = Reader(wanted)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)


async def as_sse(reader: Reader, last: Callable[[FeedEvent], bool]) -> AsyncGenerator[bytes]:
    """The events as server-sent events, until one that `last` is true for."""
    yield b": events follow\n\n"  # so that the head of the response is sent
    while True:
        try:
            event = await asyncio.wait_for(reader.take(), QUIET_SECONDS)
        except TimeoutError:
            yield b": quiet\n\n"
            continue
        yield event.encoded
        if last(event):
            return


def name_of(outcome: Outcome) -> Name:
    """A result, also one that the tool itself calls an error, or the end of a call that has none."""
    return "tool_result" if outcome.kind in (Kind.ok, Kind.tool_error) else "error"
