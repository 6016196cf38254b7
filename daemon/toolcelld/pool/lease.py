"""A call's request for a worker, and the lane of the queue in which it waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from toolcelld.pool.fair_queue import Places

if TYPE_CHECKING:
    from toolcelld.pool.idle import IdleRow
    from toolcelld.pool.worker import Worker


class Lane(NamedTuple):
    """What can serve a call: a worker with such a cell, and a place of the tool where it has a bound."""

    row: IdleRow
    bounded: str  # the tool's name; empty where it has no bound


@dataclass(slots=True, eq=False)
class Lease:
    """A call's request for a worker and for a place in its session; `granted` has the state."""

    row: IdleRow
    places: Places
    granted: asyncio.Future[Worker]  # pending while it waits; cancelled when it was withdrawn
    queue_seconds: float | None = None
    tool: str = ""
    concurrency: int | None = None  # how many calls of the tool may run at once
    deadline: asyncio.TimerHandle | None = None

    @property
    def lane(self) -> Lane:
        """What can serve it."""
        return Lane(self.row, self.tool if self.concurrency is not None else "")
