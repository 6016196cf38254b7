"""Polls the use of running calls and stops those that exceed a limit.

One timer serves all calls. It is started when a worker gets a call and not restarted when no call runs,
so a call that ends before the first poll costs one test of an attribute. Each poll reads the processes
of every busy cell (see `usage`); the next one waits ten times as long as the last one worked, so that
polling never takes more than a tenth of the daemon. Work is processor time: on a busy machine a poll is
suspended most of the time, and the processes that it reads may not be.

A worker with several calls is measured once for all of them. Its processor time is of no single call, so none is held to it.

A poll never waits for a tool: exact memory, which a tool can delay, is read in a thread (see `usage`).

A call over a limit of memory or processes is stopped without a grace, in which it would grow further.
The other limits stop it as a timeout does. With control groups the kernel limits memory and processes more tightly
than polling can; the monitor then still records which call used them.

What it cannot see: memory that is in no process's pages (a file in a memory file system that no process
maps), and processes that start and exit between two polls.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from toolcelld.calls.outcomes.outcome import Kind, Stop
from toolcelld.calls.run import Run
from toolcelld.cell.cell import Cell
from toolcelld.cell.processes.usage import CellUsage, disk_used, passed
from toolcelld.config.resolution.settings import Limits
from toolcelld.lifecycle import WorkerState
from toolcelld.pool.worker import Worker

INTERVAL_SECONDS: Final = 0.05
"""Between two polls. A tool that only fills memory exceeds its limit by some tens of MiB in this time."""
YOUNG_SECONDS: Final = INTERVAL_SECONDS / 2
"""Younger calls are not polled: most end before the next poll."""
SHARE: Final = 10
"""The pause after a poll is at least this multiple of its processor time."""
DISK_LOOKS: Final = 5
"""The disk is measured at every nth poll: it fills more slowly, and measuring takes longer."""
AT_ONCE: Final = frozenset({"memory", "processes"})


@dataclass(slots=True, eq=False)
class _Monitored:
    """One monitored call."""

    run: Run
    cpu_before_seconds: float
    """The use of its cell at the first poll, by earlier calls and the start of this one."""
    looks: int = 0
    walk: asyncio.Task[None] | None = field(default=None)


def runs_in(workers: Iterable[Worker]) -> list[Run]:
    """Return the runs of the calls that these workers have."""
    return [run for worker in workers for run in worker.listeners if isinstance(run, Run)]


class LimitMonitor:
    """Polls all busy cells with one timer.

    Args:
        runs: Returns the calls that workers have; however many wait, a poll costs what those that run cost.
        tasks: Measures disks.
    """

    def __init__(self, runs: Callable[[], Iterable[Run]], tasks: asyncio.TaskGroup) -> None:
        self._runs = runs
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        # The mutable state: whether a look is to come, and what is known from those before.
        self.timer: asyncio.TimerHandle | None = None
        self._watched: dict[Run, _Monitored] = {}
        self._loading: set[Worker] = set()

    @property
    def resting(self) -> bool:
        """Whether no poll is scheduled."""
        return self.timer is None

    def wake(self) -> None:
        """Schedule a poll, because a call has begun."""
        if self.timer is None:
            self.timer = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def watch(self, worker: Worker) -> None:
        """Monitor a worker while it loads its file."""
        self._loading.add(worker)
        self.wake()

    def close(self) -> None:
        """Stop polling."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _look(self) -> None:
        began = time.thread_time()
        runs = [*self._runs()]
        try:
            self._look_at_all(runs)
        finally:  # a look that fails must not be the last one
            worked = time.thread_time() - began
            self.timer = (
                self._loop.call_later(max(INTERVAL_SECONDS, SHARE * worked), self._look)
                if runs or self._loading
                else None
            )

    def _look_at_all(self, runs: Iterable[Run]) -> None:
        now = time.time()
        running = [run for run in runs if run.has_worker]
        self._watched = {run: self._watched[run] for run in running if run in self._watched}
        shared: dict[Worker, list[Run]] = {}
        for run in running:
            if run.worker.several:
                shared.setdefault(run.worker, []).append(run)
            elif now - run.begun_at >= YOUNG_SECONDS:
                self._look_at(run)
        for together in shared.values():
            self._look_at_shared(together)
        self._loading = {worker for worker in self._loading if worker.state is WorkerState.STARTING}
        for worker in list(self._loading):
            self._look_at_loading(worker)

    def _look_at_loading(self, worker: Worker) -> None:
        own = worker.spec.limits
        limits = Limits(memory_bytes=own.memory_bytes, processes=own.processes)
        if not worker.cell.ended.done():
            _measure(worker.cell, limits, partial(self._judge_loading, worker))

    def _judge_loading(self, worker: Worker, limits: Limits, usage: CellUsage) -> None:
        crossed = crossing(limits, usage, 0.0, time.time() - worker.started_at)
        if crossed and worker.state is WorkerState.STARTING:
            _halt(worker.cell, crossed, usage)
            worker.fail_over_limit(crossed.cause, crossed.text)

    def _look_at(self, run: Run) -> None:
        cell, limits = run.worker.cell, run.plan.limits
        if cell.ended.done():
            return
        _measure(cell, limits, partial(self._judge, run))
        self._look_at_disk(run)

    def _look_at_shared(self, runs: list[Run]) -> None:
        """Look at a worker by the lowest limits of its calls, and at its disk by the oldest of them."""
        cell, each = runs[0].worker.cell, [run.plan.limits for run in runs]
        if cell.ended.done():
            return
        lowest = Limits(
            memory_bytes=min(
                (own.memory_bytes for own in each if own.memory_bytes is not None), default=None
            ),
            processes=min((own.processes for own in each if own.processes is not None), default=None),
        )
        _measure(cell, lowest, partial(self._judge_shared, runs))
        self._watched.setdefault(runs[0], _Monitored(runs[0], 0.0))
        self._look_at_disk(runs[0])

    def _judge_shared(self, runs: list[Run], limits: Limits, usage: CellUsage) -> None:
        for run in runs:
            if not run.has_worker:
                continue
            own = run.plan.limits
            memory = own.memory_bytes if limits.memory_bytes is not None else None  # else it is being read
            held = Limits(memory_bytes=memory, processes=own.processes)
            if crossed := crossing(held, usage, 0.0, time.time() - run.begun_at):
                _halt(run.worker.cell, crossed, usage)
                self._stop(run, crossed)

    def _look_at_disk(self, run: Run) -> None:
        limits = run.plan.limits
        if limits.disk_bytes is not None and run.has_worker and run.worker.tmpdir:
            watch = self._watched[run]
            if watch.looks % DISK_LOOKS == 0 and (watch.walk is None or watch.walk.done()):
                walk = self._walk(run, limits.disk_bytes)
                watch.walk = self._tasks.create_task(walk, name=f"disk of {run.call.id}")
            watch.looks += 1

    def _judge(self, run: Run, limits: Limits, usage: CellUsage) -> None:
        if not run.has_worker:
            return  # it has ended while its memory was read
        watch = self._watched.get(run)
        if watch is None:
            watch = self._watched[run] = _Monitored(run, usage.cpu_seconds)
        used = usage.cpu_seconds - watch.cpu_before_seconds
        if crossed := crossing(limits, usage, used, time.time() - run.begun_at):
            _halt(run.worker.cell, crossed, usage)
            self._stop(run, crossed)

    async def _walk(self, run: Run, limit: int) -> None:
        worker = run.worker
        if worker.spec.policy.enclosure == "strict":
            used = await asyncio.to_thread(_of_own_disk, worker.pid, worker.tmpdir)
            over = used >= limit  # the kernel gives no more than that
        else:
            used = await asyncio.to_thread(disk_used, worker.tmpdir, limit)
            over = used > limit
        if over and run.has_worker:
            after = time.time() - run.begun_at
            self._stop(run, Stop(Kind.LIMIT_EXCEEDED, "disk", passed("disk", used, limit, after)))

    def _stop(self, run: Run, stop: Stop) -> None:
        if stop.cause in AT_ONCE or run.worker.several:
            run.end_cell(stop)  # first, so that the tool is not asked
        run.call.stop(stop)


def _measure(cell: Cell, limits: Limits, judge: Callable[[Limits, CellUsage], object]) -> None:
    """Have the usage of a cell judged: now, and once more with its exact memory where it seems to have too much."""
    usage = cell.processes.usage = cell.processes.measure(limits.processes)
    if limits.memory_bytes is not None and usage.memory_bytes > limits.memory_bytes:
        if not cell.processes.is_reading_memory:
            cell.processes.read_memory(usage, partial(judge, limits))
        limits = replace(limits, memory_bytes=None)
    judge(limits, usage)


def _halt(cell: Cell, crossed: Stop, usage: CellUsage) -> None:
    if crossed.cause == "processes":
        cell.processes.halt(usage)


def crossing(limits: Limits, usage: CellUsage, cpu_seconds: float, after_seconds: float) -> Stop | None:
    """Return the limit that a use exceeds, as a reason to stop, or None."""
    used = {
        "memory": (usage.memory_bytes, limits.memory_bytes),
        "processes": (usage.tasks, limits.processes),
        "cpu": (cpu_seconds, limits.cpu_seconds),
    }
    for key, (figure, limit) in used.items():
        if limit is not None and figure > limit:
            text = passed(key, figure, limit, after_seconds, usage)
            return Stop(Kind.LIMIT_EXCEEDED, key, text)
    return None


def _of_own_disk(pid: int, path: str) -> int:
    """Return the bytes used in a cell's private file system, or 0 if it has none."""
    try:
        disk = os.statvfs(os.path.join("/proc", str(pid), "root") + path)
    except OSError:
        return 0
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
