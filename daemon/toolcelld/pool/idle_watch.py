"""Looks at idle workers, stops them, and ends those that go on after their result.

A tool can write its result early, or leave a timer or a signal handler behind; what it does then is under no timeout and
in no outcome. So an idle worker is looked at twice, after 50 and after 100 ms. At the second look it is stopped (SIGSTOP),
and ended if it has started a process or is over a limit of its cell. The next call continues it. A timer can send SIGCONT
to its own process, so stopped workers are looked at every second.

One whose main thread has used the processor between the looks is looked at once more, and ended if it goes on: time for
which a hypervisor had taken the processor away counts as used.

One whose main thread is running, or waits for a processor, is not stopped before it has used that time or waits for its
next call: on a loaded machine it may have got next to nothing of the processor, and would go on in the next call.

Only the main thread counts before the stop: threads of numerical libraries spin for up to 200 ms after their last task.

A worker with an MCP server runs no code of a user and hears what the server says between calls, so it is not stopped; its
cell is held to its limits.

One timer serves all workers. Calls that follow each other within 50 ms cost one test of an attribute each, and one look
at the list of the idle workers in that time.

A frozen control group would need no looks, but the keeper is in it, and has to end the cell when the daemon exits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toolcelld.cell.processes.usage import CellUsage, measure, passed
from toolcelld.pool.worker import Worker

LOOK_SECONDS: Final = 0.05
"""Between the result, the first and the second look; as often as the limits of running calls are measured."""
FORK_SECONDS_MAX: Final = 10.0
"""Until a template has forked the process of its next call, which takes milliseconds, and seconds where forty processes
want each processor: one that is replaced then would be forked no sooner."""
STOPPED_SECONDS: Final = 1.0
"""Between looks at stopped workers."""
CLEANUP_NS: Final = 10_000_000
"""Processor time of the main thread between the first looks: objects of the call may be freed after its result."""
STOPPED_NS: Final = 5_000_000
"""Processor time of a stopped worker: until it is stopped, on a loaded machine, and the kernel's own."""


@dataclass(slots=True, eq=False)
class _Look:
    """What was seen of one worker since it is idle."""

    used_ns: int
    """Processor time: of the main thread at the first look, and of the process when it was stopped."""
    stopped: bool = False
    worked: bool = False
    """Whether it has used the processor between two looks."""


class IdleWatch:
    """Looks at idle workers and at those that were asked to exit.

    Args:
        idle: The idle workers, each with the loop's time since when it is idle.
        on_active: Called with an idle worker that goes on, and with what it does; it ends the worker's cell.
    """

    def __init__(self, idle: Mapping[Worker, float], on_active: Callable[[Worker, str], object]) -> None:
        self._idle = idle
        self._on_active = on_active
        self._loop = asyncio.get_running_loop()
        # The mutable state: what was seen, the workers that were asked to exit, and the timer of the next look.
        self.looks: dict[Worker, _Look] = {}
        self._leaving: set[Worker] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.hurried = False  # whether the next look is within LOOK_SECONDS

    def wake(self) -> None:
        """Look soon, because a worker has become idle."""
        if not self.hurried:
            self._schedule(LOOK_SECONDS)

    def forget(self, worker: Worker) -> None:
        """Continue a worker that is idle no more."""
        if (look := self.looks.pop(worker, None)) is not None and look.stopped:
            worker.cell.processes.continue_worker()

    def leave(self, worker: Worker) -> None:
        """Hold a worker that was asked to exit to the limits of its cell until it has."""
        self._leaving.add(worker)
        self.wake()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.hurried = False

    def _schedule(self, seconds: float) -> None:
        self.close()
        self.hurried = seconds == LOOK_SECONDS
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer, self.hurried = None, False
        now = self._loop.time()
        for worker, since in list(self._idle.items()):
            if worker.pid and now - since >= LOOK_SECONDS and (doing := self._look_at(worker, now - since)):
                self._on_active(worker, doing)
        for worker in list(self._leaving):
            if not worker.pid or worker.cell.ended.done():
                self._leaving.discard(worker)
            elif doing := _over_limit(worker, _end):
                _end(worker, doing)
        waiting = self._leaving or any(worker.pid and not self._is_stopped(worker) for worker in self._idle)
        if waiting or self.looks:
            self._schedule(LOOK_SECONDS if waiting else STOPPED_SECONDS)

    def _is_stopped(self, worker: Worker) -> bool:
        look = self.looks.get(worker)
        return look is not None and (look.stopped or worker.spec.is_server)

    def _look_at(self, worker: Worker, seconds: float) -> str:
        """Return what a worker that is idle for so long does that it must not do; empty where it does nothing."""
        if worker.is_forking:
            return "it forks no process for its next call" if seconds > FORK_SECONDS_MAX else ""
        processes = worker.cell.processes
        try:
            look = self.looks.get(worker)
            if look is None:
                self.looks[worker] = _Look(processes.main_thread_nanoseconds())
                return _over_limit(worker, self._end_idle)
            if worker.spec.is_server:
                return _over_limit(worker, self._end_idle)
            if look.stopped:
                used_ns = processes.used_nanoseconds() - look.used_ns
                return "it continued itself when it was stopped" if used_ns > STOPPED_NS else ""
            used_ns = processes.main_thread_nanoseconds() - look.used_ns
            if used_ns > CLEANUP_NS and not look.worked:
                look.used_ns, look.worked = look.used_ns + used_ns, True
                return ""
            if used_ns <= CLEANUP_NS and processes.is_running():
                return _over_limit(worker, self._end_idle)
            processes.stop_worker()
            used_ns = processes.main_thread_nanoseconds() - look.used_ns
            look.used_ns, look.stopped = processes.used_nanoseconds(), True
        except OSError:
            return ""  # it has exited, and its keeper reports that
        if used_ns > CLEANUP_NS:
            return f"it used {used_ns / 1e6:.0f} ms of processor time in {LOOK_SECONDS * 1e3:.0f} ms"
        # After it was stopped: it could have forked since the last look.
        started = [each for each in measure(processes.builders).members if each.pid not in processes.workers]
        if started:
            return f"it started a process, {started[0].name}"
        return _over_limit(worker, self._end_idle)

    def _end_idle(self, worker: Worker, doing: str) -> None:
        if worker in self._idle:  # and has no call since its memory was read
            self._on_active(worker, doing)


def _end(worker: Worker, _: str) -> None:
    worker.cell.end()


def _over_limit(worker: Worker, on_too_much: Callable[[Worker, str], object]) -> str:
    """Return the limit on processes if the worker's cell is over it, else empty.

    Args:
        on_too_much: Called later if its memory is over the limit, because the exact figure is read in a thread.
    """
    limits, processes = worker.spec.limits, worker.cell.processes
    usage = processes.measure(limits.processes)

    def over(key: str, figure: int, limit: int | None, usage: CellUsage) -> str:
        if limit is None or figure <= limit:
            return ""
        return f"it has {passed(key, figure, limit, time.time() - worker.since, usage)}"

    def on_read(usage: CellUsage) -> None:
        if doing := over("memory", usage.memory_bytes, limits.memory_bytes, usage):
            on_too_much(worker, doing)

    if limits.memory_bytes is not None and usage.memory_bytes > limits.memory_bytes:
        processes.read_memory(usage, on_read)
    return over("processes", usage.tasks, limits.processes, usage)
