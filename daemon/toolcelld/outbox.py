"""What a session has to tell its client and has not been told to forget.

Events wait in one queue for each call and leave in turns, so that a long result does not hold up
its neighbours. An event gets its number when it first leaves; what was sent is kept until the
client acknowledges its number, and is sent again after the line broke. All of it together is
bounded: beyond the bound the events that may go do so, and are counted in one gap for each call.
Outcomes, questions and their chunks never go.

Quick events wait for company: a call that ends within some milliseconds tells its whole story in
one message. An urgent event takes everything that waits along at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from toolcelld.events import Event, Gap, Progress, Update

__all__ = ["RETAINED_BYTES_MAX", "Outbox"]

RETAINED_BYTES_MAX: Final = 1024 * 1024
MESSAGE_BYTES: Final = 56 * 1024
"""What leaves together; a message of the contract has at most 64 KiB."""
COMPANY_SECONDS: Final = 0.005


class Outbox:
    """The events of one session on their way to its client."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # The mutable state: what waits, what was sent, and what had to go.
        self._waiting: dict[str, deque[Event]] = {}
        self._newest: dict[tuple[str, type[Event]], Event] = {}
        self._again: deque[Event] = deque()
        self._sent: deque[Event] = deque()
        self._gaps: dict[str, int] = {}
        self._sent_gaps: dict[str, int] = {}
        self._number = 0
        self._bytes = 0
        self._company: asyncio.TimerHandle | None = None

    @property
    def retained_bytes(self) -> int:
        """About what is held."""
        return self._bytes

    @property
    def empty(self) -> bool:
        """Whether everything has been sent, though perhaps not acknowledged."""
        return not self._waiting and not self._again

    def put(self, event: Event) -> None:
        """Queue an event; an update or progress replaces the one of its call that still waits."""
        if isinstance(event, Update | Progress) and self._replace(event):
            return
        self._waiting.setdefault(event.call_id, deque()).append(event)
        self._bytes += event.size_bytes
        if isinstance(event, Update | Progress):
            self._newest[event.call_id, type(event)] = event
        if self._bytes > RETAINED_BYTES_MAX:
            self._drop()
        if event.urgent:
            self._wake()
        elif self._company is None:
            self._company = self._loop.call_later(COMPANY_SECONDS, self._wake)

    def _replace(self, event: Update | Progress) -> bool:
        waiting = self._newest.get((event.call_id, type(event)))
        if waiting is None:
            return False
        self._bytes += event.size_bytes - waiting.size_bytes
        if isinstance(waiting, Update) and isinstance(event, Update):
            waiting.body, waiting.time = event.body, event.time
        elif isinstance(waiting, Progress) and isinstance(event, Progress):
            waiting.done, waiting.total, waiting.message = event.done, event.total, event.message
            waiting.time = event.time
        return True

    def _wake(self) -> None:
        if self._company is not None:
            self._company.cancel()
            self._company = None
        self.ready.set()

    def take(self) -> list[Event]:
        """The events of the next message, in turns between the calls; empty when nothing waits."""
        taken: list[Event] = []
        room = MESSAGE_BYTES
        while self._again and room > 0:
            event = self._again.popleft()
            room -= event.size_bytes
            taken.append(event)
        while self._waiting and room > 0:
            for call_id in list(self._waiting):
                event = self._next(call_id)
                if taken and event.size_bytes > room:
                    room = 0
                    break
                self._leave(call_id, event)
                room -= event.size_bytes
                taken.append(event)
        if self.empty:
            self.ready.clear()
        return taken

    def _next(self, call_id: str) -> Event:
        if lost := self._gaps.pop(call_id, 0):
            self._waiting[call_id].appendleft(Gap(lost, call_id=call_id))
        return self._waiting[call_id][0]

    def _leave(self, call_id: str, event: Event) -> None:
        queue = self._waiting[call_id]
        queue.popleft()
        if not queue:
            del self._waiting[call_id]
        key = (call_id, type(event))
        if self._newest.get(key) is event:
            del self._newest[key]
        self._number += 1
        event.number = self._number
        self._sent.append(event)

    def acknowledge(self, number: int) -> None:
        """Forget what the client has dealt with."""
        sent = self._sent
        while sent and sent[0].number <= number:
            self._bytes -= sent.popleft().size_bytes
        while self._again and self._again[0].number <= number:
            self._again.popleft()
        if not sent:
            self._sent_gaps.clear()

    def rewind(self) -> None:
        """The line broke: send again what was not acknowledged."""
        for call_id, count in self._sent_gaps.items():
            self._gaps[call_id] = self._gaps.get(call_id, 0) + count
            self._waiting.setdefault(call_id, deque())
        self._sent_gaps.clear()
        for call_id, queue in list(self._waiting.items()):
            if not queue:
                queue.append(Gap(self._gaps.pop(call_id), call_id=call_id))
        self._again = deque(self._sent)
        if self.empty:
            self.ready.clear()
        else:
            self.ready.set()

    def _drop(self) -> None:
        """Let go what may go: first what was sent, then what waits, of the longest queue."""
        kept: deque[Event] = deque()
        for event in self._sent:
            if event.droppable:
                self._bytes -= event.size_bytes
                self._sent_gaps[event.call_id] = self._sent_gaps.get(event.call_id, 0) + 1
            else:
                kept.append(event)
        self._sent = kept
        self._again = deque(event for event in self._again if not event.droppable)
        if self._bytes <= RETAINED_BYTES_MAX:
            return
        call_id = max(
            self._waiting, key=lambda name: sum(e.size_bytes for e in self._waiting[name] if e.droppable)
        )
        staying: deque[Event] = deque()
        for event in self._waiting[call_id]:
            if event.droppable:
                self._bytes -= event.size_bytes
                self._gaps[call_id] = self._gaps.get(call_id, 0) + 1
                self._newest.pop((call_id, type(event)), None)
            else:
                staying.append(event)
        if lost := self._gaps.pop(call_id, 0):
            staying.appendleft(Gap(lost, call_id=call_id))
            self._bytes += staying[0].size_bytes
        if staying:
            self._waiting[call_id] = staying
        else:
            del self._waiting[call_id]
