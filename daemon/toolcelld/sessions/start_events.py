"""Delays the Accepted and Started events, so that a quick call sends its ending only.

Accepted and Started wait for some milliseconds. Where the call has ended by then they are left out; another
event of the call sends them before itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from toolcelld.calls import events
from toolcelld.sessions.outbox import Outbox

if TYPE_CHECKING:
    from toolcelld.calls.call import Call

__all__ = ["DELAY_SECONDS", "StartEvents"]

DELAY_SECONDS: Final = 0.005
"""A warm call takes a tenth of it."""


class StartEvents:
    """The delayed beginnings of a session's calls.

    Args:
        outbox: where the events go.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        # The mutable state: the calls of which nothing has been told, the oldest first, and one timer for all of them.
        # Each with the number of calls before it, and the loop's time until which it is delayed. `Session` adds and drops.
        self.delayed: dict[str, tuple[Call, int, float]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Look at what is delayed when it may be due; `timer` says whether that is so already."""
        self.timer = self._loop.call_later(DELAY_SECONDS, self._look)

    def start(self, call: Call) -> None:
        """Send the Started event of a call whose Accepted event is sent."""
        if (run := call.run) is not None:
            self._outbox.put(
                events.Started(run.worker.id, run.queue_seconds, call_id=call.id, time=run.begun_at)
            )

    def send(self, call_id: str) -> None:
        """Send the delayed events of a call before another event of it."""
        if (delayed := self.delayed.pop(call_id, None)) is not None:
            self._send(*delayed)

    def _look(self) -> None:
        self.timer = None
        for call_id, delayed in list(self.delayed.items()):
            if (left := delayed[2] - self._loop.time()) > 0:
                self.timer = self._loop.call_later(left, self._look)
                return
            del self.delayed[call_id]
            self._send(*delayed)

    def _send(self, call: Call, queued: int, _: float) -> None:
        self._outbox.put(events.Accepted(queued, call_id=call.id, time=call.accepted_at))
        self.start(call)
