"""Which lease of an exclusive volume, or of a session, counts on this machine: the one with the greatest fence.

A fence grows each time that a volume or a session moves. One that has moved away and come back may be asked for with an older
ticket, which is still valid for a while; it is refused here. What is remembered ends with the daemon, as its sessions do, and a
ticket opens a session for ten seconds alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from toolcelld.errors import Refusal, RefusalReason
from toolcelld.sessions.caller import Lease


class Fences:
    """The greatest fence of each exclusive volume that was used here.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._greatest: dict[str, int] = {}

    def enter(self, lease: Lease) -> None:
        """Take note of a lease for which a session is to be opened. Raises `Refusal` for an older one."""
        self.check(lease, is_open=False)
        if lease.exclusive:
            self._greatest[lease.volume] = lease.fence

    def check(self, lease: Lease, *, is_open: bool) -> None:
        """Raise `Refusal` for a lease that is over.

        Args:
            lease: The lease that a request has shown.
            is_open: Whether its session is open here.
        """
        if lease.exclusive and lease.fence < self._greatest.get(lease.volume, 0):
            raise Refusal(
                RefusalReason.MOVED, f"the volume {lease.volume} has moved since the ticket was made."
            )
        if not is_open and self._clock() >= lease.opens:
            raise Refusal(
                RefusalReason.MOVED,
                f"the session {lease.session} is not here, and its ticket opens none any more.",
            )


def is_older(lease: Lease | None, than: Lease) -> bool:
    """Return whether a lease has to end before another begins: of the same session, or the same exclusive volume."""
    if lease is None or lease.fence >= than.fence:
        return False
    return lease.session == than.session or (than.exclusive and lease.volume == than.volume)
