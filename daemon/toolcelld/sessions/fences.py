"""Which lease of an exclusive volume, or of a session, counts on this machine: the one with the greatest fence.

A fence grows each time that a volume or a session moves. One that has moved away and come back may be asked for with an older
ticket, which is still valid for a while; it is refused here. What is remembered ends with the daemon, as its sessions do, and a
ticket opens a session for some seconds alone.

A Placement that has just been started does not know which tickets the one before has given in its last seconds. So it says its
epoch when it asks, and a ticket of before opens no exclusive volume any more, unless the volume is in use here: then it is
told so. A daemon that has just been started waits for that, too.

Where several Placements serve a cluster, a node is held by the one that has asked it for some seconds, and takes the epoch of
no other one meanwhile, nor when it has just been started. So no two of them have most of the nodes at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from toolcelld.errors import Refusal, RefusalReason
from toolcelld.sessions.caller import Lease

HOLD_SECONDS: Final = 5.0
"""For which a node is held by the one of several Placements that has asked it last; each asks once a second."""


TERM_FENCES: Final = 2**20
"""That one of several Placements gives with an epoch at most, so the epoch of the next one is greater by as many."""


class Fences:
    """The greatest fence of each exclusive volume that was used here.

    Args:
        clock: Unix time.
        steady: A clock that only goes forward.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.epoch = 0
        """The greatest that Placement has asked with."""
        self._steady = steady
        self._holder = ""
        self._held_until = steady() + HOLD_SECONDS
        self._clock = clock
        self._greatest: dict[str, int] = {}
        self._was_asked = False

    def ask(self, epoch: int, elects: str = "") -> bool:
        """Take note that Placement asks which leases there are; returns whether its epoch is taken.

        Args:
            epoch: That of the Placement.
            elects: Which one of several it is; empty for the only one.
        """
        now = self._steady()
        if elects:
            is_held = elects != self._holder and now < self._held_until
            if is_held or (epoch != self.epoch and epoch < self.epoch + TERM_FENCES):
                return False
            self._holder, self._held_until = elects, now + HOLD_SECONDS
        self.epoch = max(self.epoch, epoch)
        self._was_asked = True
        return epoch == self.epoch

    def enter(self, lease: Lease, *, is_used: bool) -> None:
        """Take note of a lease for which a session is to be opened. Raises `Refusal` for an older one.

        Args:
            lease: The lease.
            is_used: Whether a session of its volume and with its fence is open here.
        """
        self.check(lease, is_open=False, is_used=is_used)
        if lease.exclusive:
            self._greatest[lease.volume] = lease.fence

    def check(self, lease: Lease, *, is_open: bool, is_used: bool) -> None:
        """Raise `Refusal` for a lease that is over.

        Args:
            lease: The lease that a request has shown.
            is_open: Whether its session is open here.
            is_used: Whether any session of its volume and with its fence is.
        """
        if lease.exclusive and lease.fence < self._greatest.get(lease.volume, 0):
            raise Refusal(
                RefusalReason.MOVED, f"the volume {lease.volume} has moved since the ticket was made."
            )
        if is_open:
            return
        if lease.exclusive and not is_used and not (self._was_asked and lease.fence > self.epoch):
            raise Refusal(
                RefusalReason.MOVED,
                f"Placement or this machine was started since the ticket for {lease.volume} was made.",
            )
        if self._clock() >= lease.opens:
            raise Refusal(
                RefusalReason.MOVED,
                f"the session {lease.session} is not here, and its ticket opens none any more.",
            )


def is_older(lease: Lease | None, than: Lease) -> bool:
    """Return whether a lease has to end before another begins: of the same session, or the same exclusive volume."""
    if lease is None or lease.fence >= than.fence:
        return False
    return lease.session == than.session or (than.exclusive and lease.volume == than.volume)
