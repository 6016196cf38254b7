"""The idempotency cache of a session: its ended calls by client call id, with their endings.

The client's call id is the idempotency key: the same id with the same tool and arguments is the
same call and never runs twice. The newest endings are kept whole, of older ones only that they
were.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from toolcelld.calls import events
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.errors import Refusal, RefusalReason

ENDED_MAX: Final = 256
"""Ended calls whose outcome is kept for a repeated call id."""
ENDED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of all kept outcomes, everything counted. The newest is kept whatever its size."""
FORGOTTEN_MAX: Final = 10_000
"""Ids of calls whose outcome is dropped; a repeated id is refused, so that no call runs twice."""


class _Ended(NamedTuple):
    events: tuple[events.Event, ...]
    size_bytes: int
    call: CallSummary


class IdempotencyCache:
    """The ended calls of a session, by client call id."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self.retained_bytes = 0
        """The memory of the kept endings in bytes."""
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self.digests: dict[str, bytes] = {}
        """What covers the tool and the arguments of each."""

    def drop_endings(self) -> None:
        """Keep of all ended calls only that they were."""
        while self._ended:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        old_id, old = self._ended.popitem(last=False)
        self.retained_bytes -= old.size_bytes
        self._forgotten[old_id] = None
        if len(self._forgotten) > FORGOTTEN_MAX:
            del self.digests[self._forgotten.popitem(last=False)[0]]

    def end(
        self, call: CallSummary, digest: bytes, ending: tuple[events.Event, ...], size_bytes: int
    ) -> None:
        """Store the events of an ended call; drop the oldest ones beyond the bounds."""
        size = size_bytes
        for event in ending:  # one, for most calls; a generator costs as much as all the rest here
            size += event.size_bytes
        self._ended[call.call_id] = _Ended(ending, size, call)
        self.digests[call.call_id] = digest
        self.retained_bytes += size
        while len(self._ended) > ENDED_MAX or (
            self.retained_bytes > ENDED_BYTES_MAX and len(self._ended) > 1
        ):
            self._drop_oldest()

    def call(self, call_id: str) -> CallSummary | None:
        """Return the summary of an ended call, or None if it is not kept."""
        ended = self._ended.get(call_id)
        return None if ended is None else ended.call

    def ending(self, call_id: str) -> tuple[events.Event, ...]:
        """Return the events to repeat for an ended call. Raises `Refusal` where they are not kept any more."""
        if (ended := self._ended.get(call_id)) is None:
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} has ended long ago; its outcome is not kept any more.",
            )
        return ended.events
