"""The idle workers of the pool: found by what their cell is, and retired when no call has come for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator

from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.idle_watch import IdleWatch
from toolcelld.pool.shared_worker import SharedWorker
from toolcelld.pool.worker import Worker


class IdleRow:
    """The idle workers of equal cells, the one that was used last at the end, and the one that takes several calls."""

    __slots__ = ("__weakref__", "shared", "spec", "workers")

    def __init__(self, spec: CellSpec) -> None:
        self.spec = spec
        self.workers: list[Worker] = []
        self.shared: SharedWorker | None = None  # the newest one, idle or not


class IdleWorkers:
    """Workers without a call.

    Args:
        seconds: how long one is kept, unless its cell says another time.
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
        self._due = math.inf  # when it goes off
        self._watch = IdleWatch(self._since, active)

    def add(self, worker: Worker) -> None:
        """Keep a worker that has become idle."""
        assert worker.row is not None
        worker.row.workers.append(worker)
        now = self._since[worker] = self._loop.time()
        kept = worker.spec.kept_seconds
        if (due := now + (self._seconds if kept is None else kept)) < self._due:
            self._schedule(due)
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
            self._timer, self._due = None, math.inf

    def _schedule(self, due: float) -> None:
        self._stop_timer()
        if due < math.inf:
            self._timer, self._due = self._loop.call_at(due, self._look), due

    def _look(self) -> None:
        """Retire the workers that have been idle too long. One timer for all: a call would set and stop its own."""
        self._stop_timer()
        now, earliest = self._loop.time(), math.inf
        for worker, since in list(self._since.items()):
            kept = worker.spec.kept_seconds
            due = since + (self._seconds if kept is None else kept)
            if due <= now:
                self._expired(worker)
            else:
                earliest = min(earliest, due)
        self._schedule(earliest)

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._since)
