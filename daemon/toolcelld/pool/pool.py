"""Which call gets which worker: decides synchronously, acts afterwards.

The mutable state of the pool is the queue of waiting calls and the set of living workers, and
both are changed only here. `_settle` is called whenever something was added, became idle or went
away. It goes over the waiting calls once, sessions taking turns, and says for each what it gets: an
idle worker, one that is on its way, a new one, or the room of the least recently used idle one. So
no call waits behind a later one of another tool or of a busier session. It awaits nothing; tasks do
what it decided.

A tool that is sick makes nobody else wait: what dies of its tool is started again after a while
only, and in the end not at all; see `quarantine`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from toolcelld.catalog.description import Broken, Description, Rejected
from toolcelld.catalog.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.quarantine import Quarantine, Quarantined
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.turns import Turns
from toolcelld.pool.worker import Worker

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
    session: str = ""
    tool: str = ""
    concurrency: int | None = None  # how many calls of the tool may run at once


class Pool:
    """The living workers and the calls that wait for one."""

    def __init__(
        self,
        blanks: Callable[[CellSpec], PreforkedCells],
        tasks: asyncio.TaskGroup,
        *,
        workers_max: int,
        idle_seconds: float,
        grace_seconds: float,
        load_seconds: float,
        on_change: Callable[[Worker], None] = lambda _: None,
        on_shut_out: Callable[[Quarantined], None] = lambda _: None,
        quarantine: Quarantine | None = None,
        make_worker: Callable[[str, CellSpec, Callable[[Worker], None]], Worker] = Worker,
    ) -> None:
        self._blanks = blanks
        self._tasks = tasks
        self.workers_max = workers_max
        self.idle_seconds = idle_seconds
        self.grace_seconds = grace_seconds
        self.load_seconds = load_seconds
        self.quarantine = quarantine or Quarantine()
        self._on_change = on_change
        self._on_shut_out = on_shut_out
        self._make_worker = make_worker
        self._waiting: Turns[Lease] = Turns()
        self._running: dict[Worker, str] = {}  # those whose tools have a bound on concurrency, and the tool
        self._wakings: dict[str, asyncio.TimerHandle] = {}  # by digest: when a worker may be started again
        self._workers: dict[str, Worker] = {}
        self._starting: set[Worker] = (
            set()
        )  # until it is known how the start has ended, so longer than they live
        self._idle: dict[CellSpec, list[Worker]] = {}  # the warm end is the end
        self._idle_since: dict[Worker, float] = {}  # of the same, the one that has waited longest first
        self._looking: asyncio.TimerHandle | None = None  # for those that have waited too long
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
        del self._idle_since[worker]
        worker.fire(WorkerEvent.LEASE)
        return worker

    async def lease(
        self,
        spec: CellSpec,
        queue_seconds: float | None,
        *,
        session: str = "",
        tool: str = "",
        concurrency: int | None = None,
    ) -> Worker:
        """A worker, leased. Raises `Refusal` BUSY when none comes free in time, QUARANTINED, `StartFailed` when none starts.

        Cancelling gives the place in the queue up; a worker that was just granted goes back.
        """
        self.quarantine.check(spec.file)
        if concurrency is None and (worker := self.lease_now(spec)) is not None:
            return worker
        if len(self._waiting) >= WAITING_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"{WAITING_MAX} calls wait already; come again later.",
                retry_seconds=1,
                quota=f"waiting calls: {WAITING_MAX}",
            )
        lease = Lease(spec, self._loop.create_future(), session, tool, concurrency)
        self._waiting.add(session, lease)
        self._settle()
        try:
            async with asyncio.timeout(queue_seconds):
                return await asyncio.shield(lease.granted)
        except TimeoutError:
            self._give_up(lease)
            raise self._too_busy(lease, queue_seconds or 0.0) from None
        except asyncio.CancelledError:
            self._give_up(lease)
            raise

    def _too_busy(self, lease: Lease, queue_seconds: float) -> Refusal:
        if self._is_full(lease):
            why = f"{lease.tool} runs {lease.concurrency} calls at once, as it may, and none ended within {queue_seconds:g} s"
            key, quota = f"[tool.{lease.tool}] concurrency", f"{lease.tool}: {lease.concurrency}"
        elif (wait := self.quarantine.wait_seconds(lease.spec.file)) > 0:
            why = f"its workers died, and the next one is started in {wait:.1f} s only"
            key, quota = "[daemon] workers", "restarts of a worker that died"
        else:
            why = f"no worker came free within {queue_seconds:g} s: {len(self._workers)} of {self.workers_max} are alive"
            key, quota = "[daemon] workers", f"workers: {self.workers_max}"
        return Refusal(
            RefusalReason.BUSY,
            f"{why}. To wait longer: queue = …; to have more: {key} = …",
            retry_seconds=min(queue_seconds or 1, 30),
            quota=quota,
        )

    def _give_up(self, lease: Lease) -> None:
        """Leave the queue; a worker that was granted meanwhile goes back, unseen by the call."""
        granted = lease.granted
        if not granted.done():
            self._waiting.remove(lease.session, lease)
            granted.cancel()
            self._settle()  # the room that was to be its own is the next one's
        elif granted.exception() is None:
            self.give_back(granted.result(), WorkerEvent.DONE)
        if lease.spec.once:
            self.retire_owned(lease.spec.owner)  # one on its way would wait for a call that never comes

    def give_back(self, worker: Worker, event: WorkerEvent) -> None:
        """The call is over: DONE or SETTLED makes the worker idle, SPENT retires it."""
        worker.release()
        self._running.pop(worker, None)
        if event is not WorkerEvent.SETTLED:  # it reported how its call ended, and nobody had stopped it
            self.quarantine.served(worker.spec.file)
        if event is WorkerEvent.DONE and (worker.spec.once or worker.calls >= CALLS_PER_WORKER_MAX):
            event = WorkerEvent.SPENT
        if worker.state is WorkerState.DEAD:
            return
        worker.fire(event)
        self._returned(worker)

    def _returned(self, worker: Worker) -> None:
        if worker.state is WorkerState.STOPPING:
            worker.retire(self.grace_seconds)
        else:
            self._idled(worker)
            if self.quarantine.holds(worker.spec.file):
                self.retire(worker)
        if self._waiting:
            self._settle()

    def _idled(self, worker: Worker) -> None:
        self._idle.setdefault(worker.spec, []).append(worker)
        self._idle_since[worker] = self._loop.time()
        if self._looking is None:
            self._looking = self._loop.call_later(self.idle_seconds, self._look_for_idle)

    def keep_idle(self, seconds: float) -> None:
        """From now on, keep idle workers for so long."""
        self.idle_seconds = seconds
        self._look_for_idle()

    def _look_for_idle(self) -> None:
        """Retire who has been idle too long. One clock for all, as a call would set and stop one of its own."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        now = self._loop.time()
        for worker, since in list(self._idle_since.items()):
            if (left := since + self.idle_seconds - now) > 0:
                self._looking = self._loop.call_later(left, self._look_for_idle)
                return
            self.retire(worker)

    # Retiring

    def retire(self, worker: Worker) -> bool:
        """Have a worker go: an idle one or one that starts now, a busy one after its call. Says whether it goes now."""
        if worker.state is WorkerState.IDLE:
            self._forget_idle(worker)
        worker.fire(WorkerEvent.RETIRE)
        if worker.state is WorkerState.STOPPING:
            worker.retire(self.grace_seconds)
        return worker.state in (WorkerState.STOPPING, WorkerState.DEAD)

    def _forget_idle(self, worker: Worker) -> None:
        idle = self._idle.get(worker.spec, [])
        if worker in idle:
            idle.remove(worker)
            if not idle:
                del self._idle[worker.spec]
            del self._idle_since[worker]

    def retire_owned(self, owner: str) -> None:
        """Retire the workers of a session that has ended."""
        for worker in [worker for worker in self._workers.values() if worker.spec.owner == owner]:
            self.retire(worker)

    async def aclose(self) -> None:
        """Retire everybody and wait until the last cell is empty; nobody waits for a worker any more."""
        for lease in list(self._waiting):
            lease.granted.set_exception(Refusal(RefusalReason.DRAINING, "the daemon is stopping."))
        self._waiting.clear()
        for waking in self._wakings.values():
            waking.cancel()
        if self._looking is not None:
            self._looking.cancel()
        for worker in self.workers:
            self.retire(worker)
        await self._emptied.wait()

    # Deciding

    def _settle(self) -> None:
        """Match what waits with what is there, then start what is missing as far as there is room."""
        for lease, worker in list(self._missing()):
            self._tasks.create_task(self._start(worker, lease), name=f"start {worker.id}")

    def _missing(self) -> Iterator[tuple[Lease, Worker]]:
        """Serve who can be served; for every other call without a worker on its way: a new one, while there is room."""
        living = self._workers.values()
        leaving = sum(worker.state is WorkerState.STOPPING for worker in living)
        coming = Counter(worker.spec for worker in self._starting if worker.state is not WorkerState.STOPPING)
        promised: Counter[str] = Counter()  # places of tools with a bound, to calls that are before others
        for lease in self._waiting:
            file = lease.spec.file
            if self._is_full(lease, promised[lease.tool]):
                continue
            if (idle := self.lease_now(lease.spec)) is not None:
                self._grant(lease, idle)
                continue
            promised[lease.tool] += 1
            if coming[lease.spec]:
                coming[lease.spec] -= 1
            elif lease.spec.serial and any(worker.spec == lease.spec for worker in living):
                continue  # its one worker is busy, or is going
            elif (wait := self.quarantine.wait_seconds(file)) > 0:
                self._settle_after(wait, file)
            elif len(self._workers) < self.workers_max:
                worker = self._make_worker(f"w-{next(self._ids)}", lease.spec, self._changed)
                self._workers[worker.id] = worker
                self._starting.add(worker)
                self._emptied.clear()
                yield lease, worker
            elif leaving:
                leaving -= 1  # there will be room
            else:
                self._evict()

    def _grant(self, lease: Lease, worker: Worker) -> None:
        self._waiting.serve(lease.session, lease)
        if lease.concurrency is not None:
            self._running[worker] = lease.tool
        lease.granted.set_result(worker)

    def _is_full(self, lease: Lease, promised: int = 0) -> bool:
        """Whether its tool runs as often as it may, with what is promised already."""
        if lease.concurrency is None:
            return False
        return sum(tool == lease.tool for tool in self._running.values()) + promised >= lease.concurrency

    def _settle_after(self, seconds: float, file: ToolFile) -> None:
        if file.digest not in self._wakings:
            self._wakings[file.digest] = self._loop.call_later(seconds, self._wake, file.digest)

    def _wake(self, digest: str) -> None:
        del self._wakings[digest]
        self._settle()

    def _evict(self) -> None:
        """Retire the least recently used idle worker, if there is one; its room comes free when it is gone."""
        wanted = {lease.spec for lease in self._waiting}
        idle = [worker for row in self._idle.values() for worker in row]
        if idle:
            self.retire(min(idle, key=lambda worker: (worker.spec in wanted, worker.since)))

    # What dies

    def _died_of_its_tool(self, worker: Worker) -> None:
        file = worker.spec.file
        if not self.quarantine.died(file, worker.died_of, worker.last_words, started=worker.started):
            return
        for lease in [lease for lease in self._waiting if lease.spec.file.digest == file.digest]:
            self._waiting.remove(lease.session, lease)
            try:
                self.quarantine.check(file)
            except Refusal as refusal:
                lease.granted.set_exception(refusal)
        for other in self.workers:
            if other.spec.file.digest == file.digest and other.state in (
                WorkerState.IDLE,
                WorkerState.STARTING,
            ):
                self.retire(other)
        self._on_shut_out(next(held for held in self.quarantine.all if held.path == file.path))

    async def _start(self, worker: Worker, lease: Lease) -> None:
        """Start a worker; what goes wrong is told to the call it was started for, unless we wanted it gone."""
        try:
            await worker.start(self._blanks(worker.spec), load_seconds=self.load_seconds)
        except StartFailed as failure:
            if WorkerEvent.RETIRE not in worker.machine.story:
                self._fail(lease, failure)
        finally:
            self._starting.discard(worker)
        if worker.state is WorkerState.IDLE:
            self._idled(worker)
        elif worker.state is not WorkerState.DEAD:
            worker.retire(self.grace_seconds)
        self._settle()

    def _fail(self, lease: Lease, failure: StartFailed) -> None:
        """Tell it to the call that the worker was started for, or to the first of its like."""
        if lease.granted.done():
            lease = next((waiting for waiting in self._waiting if waiting.spec == lease.spec), lease)
        if not lease.granted.done():
            self._waiting.remove(lease.session, lease)
            lease.granted.set_exception(failure)

    async def describe(self, spec: CellSpec) -> Description:
        """Run a file in a cell of its own to see its tools; the cell is gone when this returns."""
        worker = self._make_worker(f"d-{next(self._ids)}", spec, self._on_change)
        try:
            description = await worker.start(
                self._blanks(spec), load_seconds=self.load_seconds, describe=True
            )
        except StartFailed as failure:
            if worker.state is not WorkerState.DEAD:
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
        if worker.state is WorkerState.DEAD and self._workers.pop(worker.id, None) is not None:
            self._forget_idle(worker)
            self._running.pop(worker, None)
            if worker.died_of:
                self._died_of_its_tool(worker)
            if not self._workers:
                self._emptied.set()
            if self._waiting:
                self._loop.call_soon(self._settle)
        self._on_change(worker)
