"""The endings of a session's calls, kept for whoever asks for the same call again.

The client's call id is the idempotency key: the same id with the same tool and arguments is the
same call and never runs twice. The newest endings are kept whole, of older ones only that they
were.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from toolcelld.calls import events
from toolcelld.calls.history import CallSummary
from toolcelld.errors import Refusal, RefusalReason

__all__ = ["IdempotencyCache"]

ENDED_MAX: Final = 256
"""Ended calls that a repeated call id finds again, with their outcomes."""
ENDED_BYTES_MAX: Final = 4 * 1024 * 1024
"""What they take together, with everything that is kept of a call. The newest one is kept whatever it takes."""
FORGOTTEN_MAX: Final = 10_000
"""Ids of calls whose outcome is not kept any more, so that they never run twice."""


class _Ended(NamedTuple):
    digest: bytes
    events: tuple[events.Event, ...]
    size_bytes: int
    call: CallSummary


class IdempotencyCache:
    """Which calls there are and were, and how the newest of them ended."""

    def __init__(self) -> None:
        self._running: dict[str, bytes] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._ended_bytes = 0
        self._forgotten: OrderedDict[str, bytes] = OrderedDict()

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._ended or call_id in self._forgotten

    def begin(self, call_id: str, digest: bytes) -> None:
        """A call is admitted; the digest covers its tool and arguments."""
        self._running[call_id] = digest

    def forget(self, call_id: str) -> None:
        """Forget a call; the same id may come again."""
        del self._running[call_id]

    def end(self, call: CallSummary, told: tuple[events.Event, ...], size_bytes: int) -> None:
        """The call has ended, and this was told of it; the oldest endings make room."""
        size = size_bytes + sum(event.size_bytes for event in told)
        self._ended[call.call_id] = _Ended(self._running.pop(call.call_id), told, size, call)
        self._ended_bytes += size
        while len(self._ended) > ENDED_MAX or (self._ended_bytes > ENDED_BYTES_MAX and len(self._ended) > 1):
            old_id, old = self._ended.popitem(last=False)
            self._ended_bytes -= old.size_bytes
            self._forgotten[old_id] = old.digest
            if len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)

    def call(self, call_id: str) -> CallSummary | None:
        """The ended call, if its ending is kept."""
        ended = self._ended.get(call_id)
        return None if ended is None else ended.call

    def rejoin(self, call_id: str, digest: bytes) -> tuple[events.Event, ...] | None:
        """What to tell again of a call that there is or was; None where it is a new one. Raises `Refusal`."""
        running = self._running.get(call_id)
        ended = self._ended.get(call_id)
        known = running or (ended.digest if ended is not None else self._forgotten.get(call_id))
        if known is None:
            return None
        if known != digest:
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} exists with another tool or other arguments; choose another id.",
                field="call.call_id",
            )
        if ended is not None:
            return ended.events
        if running is None:
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} has ended long ago; its outcome is not kept any more.",
            )
        return (events.Accepted(0, call_id=call_id),)
