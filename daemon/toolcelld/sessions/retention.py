"""Counts the bytes that clients make the daemon hold, and decides whether there is room for more.

Counted are the arguments of calls that have not ended, also while they are still coming, the events that a client has
not acknowledged, outcomes above all, and the endings that are kept for repeated call ids. A session has a limit, and
all sessions together have one. Beyond the latter a session that holds little is still served, so that a client that
reads nothing does not stop the others: the whole is bounded by the limit and that little of each session.

A session is counted when it asks for something and when a call ends. In between it can only grow by droppable events,
which have a bound of their own; what its client acknowledges is noticed late, at the latest before a call is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolcell._units import format_bytes
from toolcelld.config.remedies import set_command
from toolcelld.errors import Refusal, RefusalReason

if TYPE_CHECKING:
    from toolcelld.config.schema import DaemonSection
    from toolcelld.sessions.idempotency import IdempotencyCache
    from toolcelld.sessions.outbox import Outbox

SMALL_BYTES: Final = 1024 * 1024
"""What each session may hold when all together hold too much, and beyond its own limit for refusals to be told."""
OUTCOME_BYTES: Final = 4 * 1024
"""Of a new call: what its events and its outcome take at least."""


class TotalRetention:
    """What all sessions hold.

    Args:
        limits: The section of the configuration with the limits.
        make_room: Drops the endings that are kept for repeated call ids, in all sessions, and counts the sessions.
    """

    __slots__ = ("bytes", "limits", "make_room")

    def __init__(self, limits: DaemonSection, make_room: Callable[[], None]) -> None:
        self.limits = limits
        self.make_room = make_room
        self.bytes = 0


class Retention:
    """What one session holds."""

    __slots__ = ("_counted", "_idempotency", "_outbox", "_total", "arguments_bytes")

    def __init__(self, total: TotalRetention, outbox: Outbox, idempotency: IdempotencyCache) -> None:
        self._total = total
        self._outbox = outbox
        self._idempotency = idempotency
        self._counted = 0
        self.arguments_bytes = 0
        """Of calls that have not ended, also of those that are still coming."""

    def count(self) -> int:
        """Count again, and return the bytes of this session."""
        now = self.arguments_bytes + self._outbox.retained_bytes + self._idempotency.retained_bytes
        self._total.bytes += now - self._counted
        self._counted = now
        return now

    def close(self) -> None:
        """Hold nothing any more: the session has ended."""
        self._total.bytes -= self._counted
        self._counted = 0

    def has_room(self, size: int) -> bool:
        """Return whether this session may hold so many bytes more."""
        return self._exceeded(size) is None

    def check(self, size: int = OUTCOME_BYTES) -> None:
        """Raise `Refusal` if this session may not hold so many bytes more."""
        own = self.count()
        total, limits = self._total, self._total.limits
        if own + size <= limits.retained_per_session_bytes and total.bytes + size <= limits.retained_bytes:
            return
        if (exceeded := self._exceeded(size)) is not None:
            key, limit, subject = exceeded
            raise Refusal(
                RefusalReason.BUSY,
                f"{subject} {format_bytes(limit)} of arguments and unread outcomes already; read and acknowledge"
                f" them, or wait for calls to end. "
                f"To allow more: {set_command(('daemon', key), f'{-(-2 * limit // 2**20)}MiB')}",
                retry_seconds=1,
                quota=f"[daemon] {key} = {format_bytes(limit)}",
            )

    def check_refusals(self) -> None:
        """Raise `Refusal` if not even refusals can be queued: the client reads nothing and keeps asking."""
        self.check(-SMALL_BYTES)

    def _exceeded(self, size: int) -> tuple[str, int, str] | None:
        """Return the key of the limit that is passed, its value, and who passes it."""
        total, limits = self._total, self._total.limits
        own = self.count() + size
        if own > limits.retained_per_session_bytes:
            return "retained_per_session", limits.retained_per_session_bytes, "the session holds"
        if own > SMALL_BYTES and total.bytes + size > limits.retained_bytes:
            total.make_room()
            if self.count() + size > SMALL_BYTES and total.bytes + size > limits.retained_bytes:
                return "retained", limits.retained_bytes, "all sessions together hold"
        return None
