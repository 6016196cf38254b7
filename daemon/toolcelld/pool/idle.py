"""The idle workers of the pool: found by what their cell is, and retired when no call has come for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.idle_watch import IdleWatch
from toolcelld.pool.worker import Worker


class IdleRow:
    """The idle workers of equal cells, the one that was used last at the end."""

    __slots__ = ("__weakref__", "spec", "workers")

    def __init__(self, spec: CellSpec) -> None:
        self.spec = spec
        self.workers: list[Worker] = []


class IdleWorkers:
    """Workers without a call.

    Args:
        seconds: how long one is kept.
        expired: retires one that was kept so long, or has imported older files; it calls `discard`.
        active: ends one that goes on though it has no call, and is told what it does; it calls `discard`.
    """

    def __init__(
        self, seconds: float, expired: Callable[[Worker], object], active: Callable[[Worker, str], object]
    ) -> None:
        self._seconds = seconds
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        # The mutable state: the workers, each of which is in its row too, and the one timer for all of them.
        self._since: dict[Worker, float] = {}  # the one that has been idle longest first
        self._timer: asyncio.TimerHandle | None = None
        self._watch = IdleWatch(self._since, active)

    def add(self, worker: Worker) -> None:
        """Keep a worker that has become idle."""
        assert worker.row is not None
        worker.row.workers.append(worker)
        self._since[worker] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        if not self._watch.hurried:
            self._watch.wake()

    def take(self, row: IdleRow) -> Worker | None:
        """Remove and return the worker of a row that was used last and has the code of now; None where there is none."""
        while row.workers:
            worker = row.workers.pop()
            del self._since[worker]
            if worker in self._watch.looks:
                self._watch.forget(worker)
            if not worker.imported or worker.is_current:
                return worker
            self._expired(worker)
        return None

    def discard(self, worker: Worker) -> None:
        """Remove a worker; harmless where it is not idle."""
        if self._since.pop(worker, None) is None:
            return
        assert worker.row is not None
        worker.row.workers.remove(worker)
        self._watch.forget(worker)

    def leave(self, worker: Worker) -> None:
        """Hold a worker that was asked to exit to its limits until it has."""
        self._watch.leave(worker)

    def keep(self, seconds: float) -> None:
        """Keep workers so long from now on."""
        self._seconds = seconds
        self._look()

    def close(self) -> None:
        """Stop the timers."""
        self._watch.close()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Retire the workers that have been idle too long. One timer for all: a call would set and stop its own."""
        self._stop_timer()
        now = self._loop.time()
        for worker, since in list(self._since.items()):
            if (left := since + self._seconds - now) > 0:
                self._timer = self._loop.call_later(left, self._look)
                return
            self._expired(worker)

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._since)
