"""Which call gets which worker: decides synchronously, acts afterwards.

The mutable state of the pool is the queue of waiting calls and the set of living workers, and
both are changed only here. `_settle` is called whenever something was added, became idle or went
away. It hands idle workers to waiting calls in order of arrival, and says what must be done
beyond that: start a worker for a call that none fits, retire the least recently used idle one
where the pool is full. It awaits nothing; tasks do what it decided.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from toolcelld.blanks import Blanks
from toolcelld.description import Broken, Description, Rejected
from toolcelld.lifecycle import Worker as State
from toolcelld.lifecycle import WorkerEvent
from toolcelld.outcome import Refusal, RefusalReason
from toolcelld.workers import CellSpec, StartFailed, Worker

__all__ = ["Lease", "Pool"]

WAITING_MAX: Final = 1000
"""Calls that wait for a worker, all sessions together; each holds its arguments of up to 16 MiB."""
CALLS_PER_WORKER_MAX: Final = 10_000
"""After so many calls a worker is worn out: what leaks in a tool goes with it."""


@dataclass(slots=True, eq=False)
class Lease:
    """A call's wish for a worker: waiting, then granted, failed or given up."""

    spec: CellSpec
    granted: asyncio.Future[Worker]


class Pool:
    """The living workers and the calls that wait for one."""

    def __init__(
        self,
        blanks: Callable[[CellSpec], Blanks],
        tasks: asyncio.TaskGroup,
        *,
        workers_max: int,
        idle_seconds: float,
        grace_seconds: float,
        on_change: Callable[[Worker], None] = lambda _: None,
    ) -> None:
        self._blanks = blanks
        self._tasks = tasks
        self.workers_max = workers_max
        self.idle_seconds = idle_seconds
        self.grace_seconds = grace_seconds
        self._on_change = on_change
        self._waiting: deque[Lease] = deque()
        self._workers: dict[str, Worker] = {}
        self._starting: set[Worker] = (
            set()
        )  # until it is known how the start has ended, so longer than they live
        self._idle: dict[CellSpec, list[Worker]] = {}  # the warm end is the end
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ids = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def workers(self) -> list[Worker]:
        """The living workers, the oldest first."""
        return list(self._workers.values())

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    # The two ends of a lease

    def lease_now(self, spec: CellSpec) -> Worker | None:
        """A warm worker, leased, if there is one and nobody waits for its like; the hot path."""
        idle = self._idle.get(spec)
        if not idle:
            return None
        worker = idle.pop()
        if not idle:
            del self._idle[spec]
        self._timers.pop(worker.id).cancel()
        worker.fire(WorkerEvent.LEASE)
        return worker

    async def lease(self, spec: CellSpec, queue_seconds: float | None) -> Worker:
        """A worker, leased. Raises `Refusal` BUSY when none comes free in time, `StartFailed` when none starts.

        Cancelling gives the place in the queue up; a worker that was just granted goes back.
        """
        if (worker := self.lease_now(spec)) is not None:
            return worker
        if len(self._waiting) >= WAITING_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"{WAITING_MAX} calls wait already; come again later.",
                retry_seconds=1,
                quota=f"waiting calls: {WAITING_MAX}",
            )
        lease = Lease(spec, self._loop.create_future())
        self._waiting.append(lease)
        self._settle()
        try:
            async with asyncio.timeout(queue_seconds):
                return await asyncio.shield(lease.granted)
        except TimeoutError:
            self._give_up(lease)
            raise Refusal(
                RefusalReason.BUSY,
                f"no worker came free within {queue_seconds:g} s: {len(self._workers)} of {self.workers_max} are alive. "
                "To wait longer: queue = …; to have more: [daemon] workers = …",
                retry_seconds=min(queue_seconds or 1, 30),
                quota=f"workers: {self.workers_max}",
            ) from None
        except asyncio.CancelledError:
            self._give_up(lease)
            raise

    def _give_up(self, lease: Lease) -> None:
        """Leave the queue; a worker that was granted meanwhile goes back, unseen by the call."""
        granted = lease.granted
        if not granted.done():
            self._waiting.remove(lease)
            granted.cancel()
        elif granted.exception() is None:
            self.give_back(granted.result(), WorkerEvent.DONE)
        if lease.spec.once:
            self.retire_owned(lease.spec.owner)  # one on its way would wait for a call that never comes

    def give_back(self, worker: Worker, event: WorkerEvent) -> None:
        """The call is over: DONE or SETTLED makes the worker idle, SPENT retires it."""
        worker.release()
        if event is WorkerEvent.DONE and (worker.spec.once or worker.calls >= CALLS_PER_WORKER_MAX):
            event = WorkerEvent.SPENT
        if worker.state is State.DEAD:
            return
        worker.fire(event)
        self._returned(worker)

    def _returned(self, worker: Worker) -> None:
        if worker.state is State.STOPPING:
            worker.retire(self.grace_seconds)
        else:
            self._idled(worker)
        if self._waiting:
            self._settle()

    def _idled(self, worker: Worker) -> None:
        self._idle.setdefault(worker.spec, []).append(worker)
        self._timers[worker.id] = self._loop.call_later(self.idle_seconds, self.retire, worker)

    # Retiring

    def retire(self, worker: Worker) -> bool:
        """Have a worker go: an idle one or one that starts now, a busy one after its call. Says whether it goes now."""
        if worker.state is State.IDLE:
            self._forget_idle(worker)
        worker.fire(WorkerEvent.RETIRE)
        if worker.state is State.STOPPING:
            worker.retire(self.grace_seconds)
        return worker.state in (State.STOPPING, State.DEAD)

    def _forget_idle(self, worker: Worker) -> None:
        idle = self._idle.get(worker.spec, [])
        if worker in idle:
            idle.remove(worker)
            if not idle:
                del self._idle[worker.spec]
            self._timers.pop(worker.id).cancel()

    def retire_owned(self, owner: str) -> None:
        """Retire the workers of a session that has ended."""
        for worker in [worker for worker in self._workers.values() if worker.spec.owner == owner]:
            self.retire(worker)

    def retire_stale(self, is_stale: Callable[[CellSpec], bool]) -> None:
        """Retire idle workers whose file is not what any catalog has any more."""
        for worker in [idle for row in self._idle.values() for idle in row if is_stale(idle.spec)]:
            self.retire(worker)

    async def aclose(self) -> None:
        """Retire everybody and wait until the last cell is empty; nobody waits for a worker any more."""
        for lease in list(self._waiting):
            lease.granted.set_exception(Refusal(RefusalReason.DRAINING, "the daemon is stopping."))
        self._waiting.clear()
        for worker in self.workers:
            self.retire(worker)
        await self._emptied.wait()

    # Deciding

    def _settle(self) -> None:
        """Match what waits with what is there, then start what is missing as far as there is room."""
        for lease in list(self._waiting):
            if (worker := self.lease_now(lease.spec)) is not None:
                self._waiting.remove(lease)
                lease.granted.set_result(worker)
        for lease, worker in self._missing():
            self._tasks.create_task(self._start(worker, lease), name=f"start {worker.id}")

    def _missing(self) -> Iterator[tuple[Lease, Worker]]:
        """For every call that waits without a worker on its way: a new one, while there is room."""
        living = self._workers.values()
        leaving = sum(worker.state is State.STOPPING for worker in living)
        coming = Counter(worker.spec for worker in self._starting if worker.state is not State.STOPPING)
        for lease in self._waiting:
            if coming[lease.spec]:
                coming[lease.spec] -= 1
            elif lease.spec.serial and any(worker.spec == lease.spec for worker in living):
                continue  # its one worker is busy, or is going
            elif len(self._workers) < self.workers_max:
                worker = Worker(f"w-{next(self._ids)}", lease.spec, self._changed)
                self._workers[worker.id] = worker
                self._starting.add(worker)
                self._emptied.clear()
                yield lease, worker
            elif leaving:
                leaving -= 1  # there will be room
            else:
                self._evict()

    def _evict(self) -> None:
        """Retire the least recently used idle worker, if there is one; its room comes free when it is gone."""
        idle = [worker for row in self._idle.values() for worker in row]
        if idle:
            self.retire(min(idle, key=lambda worker: worker.since))

    async def _start(self, worker: Worker, lease: Lease) -> None:
        """Start a worker; what goes wrong is told to the call it was started for, unless we wanted it gone."""
        try:
            await worker.start(self._blanks(worker.spec))
        except StartFailed as failure:
            if WorkerEvent.RETIRE not in worker.machine.story:
                self._fail(lease, failure)
        finally:
            self._starting.discard(worker)
        if worker.state is State.IDLE:
            self._idled(worker)
        elif worker.state is not State.DEAD:
            worker.retire(self.grace_seconds)
        self._settle()

    def _fail(self, lease: Lease, failure: StartFailed) -> None:
        """Tell it to the call that the worker was started for, or to the first of its like."""
        if lease not in self._waiting:
            lease = next((waiting for waiting in self._waiting if waiting.spec == lease.spec), lease)
        if lease in self._waiting:
            self._waiting.remove(lease)
            lease.granted.set_exception(failure)

    async def describe(self, spec: CellSpec) -> Description:
        """Run a file in a cell of its own to see its tools; the cell is gone when this returns."""
        worker = Worker(f"d-{next(self._ids)}", spec, self._on_change)
        try:
            description = await worker.start(self._blanks(spec), describe=True)
        except StartFailed as failure:
            if worker.state is not State.DEAD:
                await worker.end()
            return Description(
                broken=Broken(failure.stage, failure.message, failure.line, failure.missing_module)
            )
        worker.fire(WorkerEvent.RETIRE)
        await worker.end()
        if worker.printed:
            told = worker.printed.decode(errors="replace").strip().splitlines()
            notice = Rejected(
                "", f"printed while it was loaded: {(told or [''])[0][:80]!r}; move that into a tool"
            )
            description = replace(description, problems=(*description.problems, notice))
        return description

    def _changed(self, worker: Worker) -> None:
        if worker.state is State.DEAD and self._workers.pop(worker.id, None) is not None:
            self._forget_idle(worker)
            if not self._workers:
                self._emptied.set()
            if self._waiting:
                self._loop.call_soon(self._settle)
        self._on_change(worker)
