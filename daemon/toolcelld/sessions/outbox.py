"""The events of a session that its client has not acknowledged.

Events wait in one queue for each call and leave in turns, so that a long result does not hold up
its neighbours. An event gets its number when it first leaves; what was sent is kept until the
client acknowledges its number, and is sent again after the line broke. All of it together is
bounded: beyond the bound the events that may go do so, and in their place stands one gap for each
call that counts them. Outcomes, questions and their chunks never go.

A gap in place of what was sent is sent only if the line breaks. It may then count an event that had
arrived, but never misses one that had not.

Events that are not urgent wait some milliseconds to be batched. An urgent event takes everything that waits
along at once. The Accepted and Started events of a call wait for as long before they come in (`StartEvents`): where the call
has ended by then they are left out, so that a quick call sends its ending only; another event of it sends them before itself.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from toolcelld.calls.events import (
    MESSAGE_BYTES,
    CallAccepted,
    CallEnded,
    CallRefused,
    CallStarted,
    Event,
    EventsDropped,
    PartialResult,
    ProgressMade,
)
from toolcelld.errors import BadRequest

if TYPE_CHECKING:
    from toolcelld.calls.call import Call

RETAINED_BYTES_MAX: Final = 1024 * 1024
"""Bytes of droppable events; outcomes and questions are kept beyond it."""
COMPANY_SECONDS: Final = 0.02
"""How long an event that is not urgent waits for others: too short for a person to see."""
DELAY_SECONDS: Final = 0.02
"""How long nothing is sent about a call that has only begun; a warm call takes a fortieth of it."""


class Outbox:
    """The unsent and unacknowledged events of one session."""

    def __init__(self, retained_bytes_max: int = RETAINED_BYTES_MAX) -> None:
        self.retained_bytes_max = retained_bytes_max
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # The mutable state. An event is in one of three places: it waits, in the queue of its call; it was sent on
        # this line; or it was sent on a line that broke, and goes again. Numbers rise through the latter two.
        self._waiting: dict[str, deque[Event]] = {}
        self._sent: deque[Event] = deque()
        self._again: deque[Event] = deque()
        self._newest: dict[tuple[str, type[Event]], Event] = {}
        self.number = 0
        """The number of the newest event that was sent."""
        self.retained_bytes = 0
        """The approximate memory of the held events in bytes."""
        self._droppable_bytes = 0
        self._company: asyncio.TimerHandle | None = None

    def holds(self, event: Event) -> bool:
        """Whether an event is not acknowledged yet."""
        return any(event is held for held in self._all())

    def endings(self) -> list[str]:
        """Yield the ids of calls whose ending is not acknowledged yet."""
        return [
            event.call_id
            for event in self._all()
            if event.call_id and isinstance(event, CallEnded | CallRefused)
        ]

    def _all(self) -> Iterator[Event]:
        return itertools.chain(self._again, self._sent, *self._waiting.values())

    @property
    def empty(self) -> bool:
        """Whether all events are sent, acknowledged or not."""
        return not self._waiting and not self._again

    def put(self, event: Event) -> None:
        """Queue an event. An update or progress replaces an unsent one of the same call."""
        if not (event.droppable and isinstance(event, PartialResult | ProgressMade) and self._replace(event)):
            if (queue := self._waiting.get(event.call_id)) is None:
                queue = self._waiting[event.call_id] = deque()
            queue.append(event)
            self.retained_bytes += event.size_bytes
            if event.droppable:
                self._droppable_bytes += event.size_bytes
        if self._droppable_bytes > self.retained_bytes_max:
            self._make_room()
        if event.urgent:
            if self._company is not None:
                self._company.cancel()
                self._company = None
            self.ready.set()
        elif self._company is None:
            self._company = self._loop.call_later(COMPANY_SECONDS, self._wake)

    def _count(self, event: Event, size_bytes: int) -> None:
        """Count an event, or with a size below zero count it no more."""
        self.retained_bytes += size_bytes
        if event.droppable:
            self._droppable_bytes += size_bytes

    def _replace(self, event: PartialResult | ProgressMade) -> bool:
        waiting = self._newest.setdefault((event.call_id, type(event)), event)
        if waiting is event:
            return False
        self._count(waiting, -waiting.size_bytes)
        if isinstance(waiting, PartialResult) and isinstance(event, PartialResult):
            waiting.body = event.body
        elif isinstance(waiting, ProgressMade) and isinstance(event, ProgressMade):
            waiting.done, waiting.total, waiting.message = event.done, event.total, event.message
        waiting.time = event.time
        waiting.measure()
        self._count(waiting, waiting.size_bytes)
        return True

    def _wake(self) -> None:
        self._company = None
        self.ready.set()

    def take(self) -> list[Event]:
        """Return the events of the next message, round-robin between calls; empty if none are queued."""
        taken: list[Event] = []
        room = MESSAGE_BYTES
        again, waiting = self._again, self._waiting
        while again:  # first, because their numbers are lower
            if taken and again[0].size_bytes > room:
                break
            taken.append(again.popleft())
            room -= taken[-1].size_bytes
        while waiting and not again:
            call_id, queue = next(iter(waiting.items()))
            event = queue[0]
            if taken and event.size_bytes > room:
                break
            room -= event.size_bytes
            taken.append(queue.popleft())
            del waiting[call_id]
            if queue:
                waiting[call_id] = queue  # behind the others: it has had its turn
            if event.droppable:
                self._newest.pop((call_id, type(event)), None)
            self.number += 1
            event.number = self.number
        if not (waiting or again):
            self.ready.clear()
        self._sent.extend(taken)
        return taken

    def acknowledge(self, number: int) -> None:
        """Drop the events up to an acknowledged number. Raises `Refusal` for a number that was not sent."""
        if number > self.number:
            raise BadRequest(
                f"acknowledged: {number}, but the newest event of the session is {self.number}.",
                field="acknowledged",
            )
        for queue in (self._sent, self._again):
            while queue and queue[0].number <= number:
                event = queue.popleft()
                self.retained_bytes -= event.size_bytes
                if event.droppable:
                    self._droppable_bytes -= event.size_bytes

    def rewind(self) -> None:
        """Queue unacknowledged events again, after the stream broke."""
        self._again.extendleft(reversed(self._sent))
        self._sent.clear()
        if self.empty:
            self.ready.clear()
        else:
            self.ready.set()

    def _make_room(self) -> None:
        """Drop droppable events until the rest fits: first those already sent, then those of the longest queues."""
        self._sent = self._thinned(self._sent)
        if self._droppable_bytes > self.retained_bytes_max:
            self._again = self._thinned(self._again)
        while self._droppable_bytes > self.retained_bytes_max:
            call_id, most = max(
                ((call_id, _droppable_bytes(queue)) for call_id, queue in self._waiting.items()),
                key=lambda pair: pair[1],
                default=("", 0),
            )
            if not most:
                return
            self._newest.pop((call_id, PartialResult), None)
            self._newest.pop((call_id, ProgressMade), None)
            self._waiting[call_id] = self._thinned(self._waiting[call_id])

    def _thinned(self, queue: deque[Event]) -> deque[Event]:
        """Return the queue with one gap event per call, at the position of its last dropped event."""
        kept: deque[Event] = deque()
        gaps: dict[str, EventsDropped] = {}
        for event in reversed(queue):
            if not event.droppable and not isinstance(event, EventsDropped):
                kept.appendleft(event)
                continue
            gap = gaps.get(event.call_id)
            if gap is None:
                gap = gaps[event.call_id] = EventsDropped(0, number=event.number, call_id=event.call_id)
                self._count(gap, gap.size_bytes)
                kept.appendleft(gap)
            gap.count += event.count if isinstance(event, EventsDropped) else 1
            self._count(event, -event.size_bytes)
        return kept


def _droppable_bytes(queue: deque[Event]) -> int:
    return sum(event.size_bytes for event in queue if event.droppable)


class StartEvents:
    """The delayed beginnings of a session's calls.

    Args:
        outbox: where the events go.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        # The mutable state: the calls of which nothing has been told, the oldest first, and one timer for all of them.
        # Each with the number of calls before it, and the loop's time until which it is delayed.
        self.delayed: dict[str, tuple[Call, int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def accept(self, call: Call, queued: int) -> None:
        """Delay the Accepted event of a call; `queued` calls are before it."""
        self.delayed[call.id] = (call, queued, self._loop.time() + DELAY_SECONDS)
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY_SECONDS, self._look)

    def start(self, call: Call) -> None:
        """Send the Started event of a call whose Accepted event is sent."""
        if (run := call.run) is not None:
            limit = run.plan.limits.timeout_seconds or 0.0
            self._outbox.put(
                CallStarted(run.worker.id, run.queue_seconds, limit, call_id=call.id, time=run.begun_at)
            )

    def send(self, call_id: str) -> None:
        """Send the delayed events of a call before another event of it."""
        if (delayed := self.delayed.pop(call_id, None)) is not None:
            self._send(*delayed)

    def drop(self, call_id: str) -> None:
        """Drop the delayed events of a call that has ended."""
        self.delayed.pop(call_id, None)

    def _look(self) -> None:
        self._timer = None
        for call_id, delayed in list(self.delayed.items()):
            if (left := delayed[2] - self._loop.time()) > 0:
                self._timer = self._loop.call_later(left, self._look)
                return
            del self.delayed[call_id]
            self._send(*delayed)

    def _send(self, call: Call, queued: int, _: float) -> None:
        self._outbox.put(CallAccepted(queued, call_id=call.id, time=call.accepted_at))
        self.start(call)
