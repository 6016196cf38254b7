"""How a session on another machine is kept, and what is known of its calls when that machine is lost.

The machine ends a session whose client has said nothing for the lease. So something is said every third of it; and who has
lost the machine knows when at the latest its calls have ended there.

A client whose loop was blocked for longer, or whose machine slept, may have lost the session, and not have read yet that the line
has ended. What it wrote there would be lost, so the connection waits for an answer first.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from toolcell.client.outcome import NOT_UNDONE, Facts, Kind, Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

from .stream import Stream

WORDS = 3
"""In the time of a lease, so that one may come late."""
ELSEWHERE = (
    "The next call runs on a machine of the cluster that answers, without what tools had kept in memory."
)
REPEAT = "It can be repeated later."
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts while the machine sleeps, where the system has such a clock."""


class Lease:
    """The lease of one session.

    Args:
        node: The name of the machine.
        seconds: The lease.
        linger_seconds: What calls have beyond it, if the machine reads the last words late.
        fence: Of a session that was placed; default: 0, for none.
    """

    def __init__(self, node: str, seconds: float, linger_seconds: float, fence: int = 0) -> None:
        self._node = node
        self._fence = fence
        self._seconds = seconds
        self._linger_seconds = linger_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._until = datetime.now(UTC)
        self._spoken_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing was said for so long that the machine may have ended the session; until it is kept again."""
        return _now() - self._spoken_at > self._seconds

    def keep(self, stream: Stream) -> None:
        """Say something from now on, on a stream."""
        self.stop()
        self._spoken_at = _now()
        self._speak(stream)

    def stop(self) -> None:
        """Say nothing any more: the stream is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._until = datetime.now(UTC) + timedelta(seconds=self._seconds + self._linger_seconds)

    def _speak(self, stream: Stream) -> None:
        if not self.is_over:
            self._spoken_at = _now()
        stream.send(pb.AttachRequest())
        self._timer = asyncio.get_running_loop().call_later(self._seconds / WORDS, self._speak, stream)

    def lost(self, message: str, *, sent: bool) -> Outcome:
        """The outcome of a call that is lost with the machine, which may have had it if it was sent."""
        until = self._until.strftime("%Y-%m-%dT%H:%M:%SZ")
        if sent:
            lines = [
                f"The call is lost with the machine {self._node}. {message}",
                f"It may go on there until {until}, and is not run again by itself: see what it has done before you repeat it.",
                NOT_UNDONE,
            ]
            if self._fence:
                lines.append(ELSEWHERE)
        else:
            lines = [f"The call was not run, as the machine {self._node} is lost. {message}", REPEAT]
        return Outcome(
            Kind.internal,
            "node_lost",
            "\n".join(lines),
            metadata={
                "node": self._node,
                **({"fence": self._fence} if self._fence else {}),
                **({"may_run_until": until} if sent else {}),
            },
            ran=sent,
            side_effects_possible=sent,
            facts=Facts(node=self._node if self._fence else "", fence=self._fence),
        )


def _now() -> float:
    return time.clock_gettime(CLOCK)
