"""Which call gets which worker: decides synchronously, acts afterwards.

There is one queue, for a place in the session, a place among the calls of the tool and a worker, and
one deadline for all three. The mutable state of the pool is this queue and the set of living workers,
and both are changed only here. `_settle` is called whenever something was added, became idle or went
away. It goes over what waits, sessions taking turns, and says what it gets: an idle worker, one that
is on its way, a new one, or the room of the least recently used idle one. So no call waits behind a
later one of another tool or of a busier session. It awaits nothing; tasks do what it decided.

Calls that the same workers can serve wait in one lane. Only the first call of a lane is looked at,
and the next one only when something was done for it, so what an event costs depends on how many
different workers are wanted and not on how many calls wait.

A tool that fails delays no other tool: the workers of a file that crashes are restarted with backoff,
and a file that crashes too often is quarantined; see `quarantine`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final
from weakref import WeakValueDictionary

from toolcell._paths import is_below
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import Place
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.fair_queue import FairQueue, Places
from toolcelld.pool.idle import IdleRow, IdleWorkers
from toolcelld.pool.lease import Lane, Lease
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.quarantine import FILES_MAX, Quarantine, Quarantined
from toolcelld.pool.shared_worker import SharedWorker
from toolcelld.pool.startup import StartFailed, bug
from toolcelld.pool.worker import Worker

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 4000
"""Calls with a place in their session that wait for a worker, all sessions together: 500 sessions that use every place.
Each is some kilobytes beside its arguments, which are bounded on their own."""
LEAVING_MAX: Final = 3
"""Processes of one MCP server that get no call and have some; with so many, new calls wait for the end of one."""
WENT_ON: Final = "after its result"
"""In the line of an idle worker that is ended, as it does something."""
CALLS_PER_WORKER_MAX: Final = 10_000
"""After so many calls a worker is worn out: what leaks in a tool goes with it."""


class Pool:
    """The living workers and the calls that wait for one."""

    def __init__(
        self,
        prefork_for: Callable[[CellSpec], PreforkedCells],
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
        self._prefork_for = prefork_for
        self._tasks = tasks
        self.workers_max = workers_max
        self.grace_seconds = grace_seconds
        self.load_seconds = load_seconds
        self.quarantine = quarantine or Quarantine()
        self._on_change = on_change
        self._on_shut_out = on_shut_out
        self._make_worker = make_worker
        self._waiting: FairQueue[Lane, Lease] = FairQueue()
        self._running: dict[Worker, str] = {}  # those whose tools have a bound on concurrency, and the tool
        self._wakings: dict[str, asyncio.TimerHandle] = {}  # by digest: when a worker may be started again
        self._workers: dict[str, Worker] = {}
        self._shared: set[SharedWorker] = set()  # the living ones
        self.server_starts: dict[
            str, int
        ] = {}  # processes of MCP servers by the digest of the entry, the latest last
        self._rows: WeakValueDictionary[CellSpec, IdleRow] = WeakValueDictionary()  # of plans and workers
        # Until it is known how the start has ended, so longer than they live
        self._starting: set[Worker] = set()
        self._idle = IdleWorkers(idle_seconds, self.retire, self._end_active)
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
        return self._waiting.count

    def row(self, spec: CellSpec) -> IdleRow:
        """Return the row of the workers with such a cell, for plans that keep it: a call then compares no specs."""
        if (row := self._rows.get(spec)) is None:
            row = self._rows[spec] = IdleRow(spec)
        return row

    # The two ends of a lease

    def lease_now(self, row: IdleRow, places: Places) -> Worker | None:
        """A warm worker with a place, leased, where both are free and no call waits for them; the hot path."""
        if places.free <= places.waiting or (worker := self._idle.take(row)) is None:
            return None
        places.free -= 1
        if places.row is not None:
            places.row.fit(places.free)
        worker.fire(WorkerEvent.LEASE)
        return worker

    def lease(
        self,
        row: IdleRow,
        places: Places,
        queue_seconds: float | None,
        *,
        tool: str = "",
        concurrency: int | None = None,
    ) -> Lease:
        """Queue for a worker, and for a place of the session and of the tool. Raises `Refusal` QUARANTINED or BUSY.

        `Lease.granted` gets the leased worker, or fails: with `Refusal` BUSY when none comes free in time or
        QUARANTINED, with `StartFailed` when none starts.

        Args:
            places: those of the session.
            queue_seconds: how long to wait at most; None for ever.
            tool: the tool's name, for `concurrency`.
            concurrency: how many calls of the tool may run at once; None for no bound.
        """
        self.quarantine.check(row.spec.file)
        if self._waiting.offered >= WAITING_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"{WAITING_MAX} calls wait already; come again later.",
                retry_seconds=1,
                quota=f"waiting calls: {WAITING_MAX}",
            )
        lease = Lease(row, places, self._loop.create_future(), queue_seconds, tool, concurrency)
        self._waiting.add(places, lease, lease.lane)
        self._settle()
        if queue_seconds is not None and not lease.granted.done():
            lease.deadline = self._loop.call_later(queue_seconds, self._too_late, lease)
        return lease

    def withdraw(self, lease: Lease) -> None:
        """Give up a lease: its turn in the queue, or the worker that it was granted just now."""
        granted = lease.granted
        if not granted.done():
            self._leave_queue(lease)
            granted.cancel()
        elif not granted.cancelled() and granted.exception() is None:
            worker = granted.result()
            if isinstance(worker, SharedWorker):
                self.unbind(worker, lease.tool)
            self.give_back(worker, WorkerEvent.DONE, lease.places)

    def hold(self, lease: Lease) -> None:
        """Stop the time that a lease may wait in the queue, while an environment is built for it."""
        if lease.deadline is not None:
            lease.deadline.cancel()
            lease.deadline = None

    def go_on(self, lease: Lease) -> None:
        """Give a lease that was held its time in the queue again."""
        if lease.queue_seconds is not None and not lease.granted.done():
            lease.deadline = self._loop.call_later(lease.queue_seconds, self._too_late, lease)

    def _too_late(self, lease: Lease) -> None:
        lease.granted.set_exception(self._too_busy(lease, lease.queue_seconds or 0.0))
        self._leave_queue(lease)

    def _leave_queue(self, lease: Lease) -> None:
        """Remove a lease that is not granted, and let the next one have what was to be its own."""
        self._remove(lease)
        self._settle()

    def _remove(self, lease: Lease) -> None:
        self._waiting.remove(lease.places, lease)
        if lease.deadline is not None:
            lease.deadline.cancel()

    def _too_busy(self, lease: Lease, queue_seconds: float) -> Refusal:
        if not self._waiting.has_place(lease.places, lease):
            return Refusal(
                RefusalReason.BUSY,
                "the session runs as many calls at once as it may, "
                f"and none ended within {queue_seconds:g} s.",
                retry_seconds=1,
                quota="[daemon] calls_per_session",
            )
        if self._is_full(lease):
            why = f"{lease.tool} runs {lease.concurrency} calls at once, as it may, and none ended within {queue_seconds:g} s"
            key, quota = f"[tool.{lease.tool}] concurrency", f"{lease.tool}: {lease.concurrency}"
        elif (shared := lease.row.shared) is not None and shared.state is WorkerState.BUSY:
            source = shared.spec.file.source
            why = f"the MCP server {source} has {shared.places} calls at once, as it may, and none ended within {queue_seconds:g} s"
            key, quota = f"[source.{source}] concurrency", f"{source}: {shared.places}"
        elif (wait := self.quarantine.wait_seconds(lease.row.spec.file)) > 0:
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

    def give_back(
        self, worker: Worker, event: WorkerEvent, places: Places, *, unconfirmed: bool = False
    ) -> None:
        """Give back a worker and its call's place: DONE or SETTLED makes the worker idle, SPENT retires it.

        A call that is `unconfirmed` was stopped, so it says nothing about the health of its file.
        """
        places.free += 1
        if places.row is not None:
            places.row.fit(places.free)
        worker.listener = None
        worker.since = time.time()
        if self._running:
            self._running.pop(worker, None)
        spec, ailing = worker.spec, self.quarantine.records
        # One that reported how its call ended: nothing had stopped it
        if ailing and event is not WorkerEvent.SETTLED and not unconfirmed:
            self.quarantine.served(spec.file)
        if event is WorkerEvent.DONE and (
            (spec.fresh and not worker.forks) or worker.calls >= CALLS_PER_WORKER_MAX
        ):
            event = WorkerEvent.SPENT
        if worker.state is not WorkerState.DEAD:
            if worker.others:
                worker.others -= 1
                worker.fire(WorkerEvent.LEFT)
            elif worker.fire(event) is WorkerState.STOPPING:
                self._let_exit(worker)
            else:
                self._idle.add(worker)
                if ailing and self.quarantine.holds(spec.file):
                    self.retire(worker)
        if self._waiting.count:
            self._settle()

    def unbind(self, worker: SharedWorker, tool: str) -> None:
        """Note that a call of a tool has left a worker that takes several."""
        if worker.bounded[tool]:
            worker.bounded[tool] -= 1

    def give_place(self, places: Places) -> None:
        """Give back the place of a call whose worker is gone, or whose question is open."""
        places.give()
        if self._waiting.count:
            self._settle()

    def has_writers(self, directory: str) -> bool:
        """Whether living workers of a session's directory may write files."""
        return any(
            worker.spec.directory == directory and worker.spec.policy.writable
            for worker in self._workers.values()
        )

    def is_writing(self, root: str, aside: Worker | None = None) -> bool:
        """Whether a worker without a guard that is not idle, one aside, may write in a directory, or above it or below it."""
        return any(
            worker is not aside
            and worker.state is not WorkerState.IDLE
            and worker.spec.policy.repaired
            and any(is_below(root, place) or is_below(place, root) for place in worker.spec.policy.writable)
            for worker in self._workers.values()
        )

    def keep_idle(self, seconds: float) -> None:
        """Keep idle workers so long from now on."""
        self._idle.keep(seconds)

    # Retiring

    def replace(self, worker: SharedWorker) -> None:
        """Give a worker with calls no further one; its cell is ended when it is drained, and another serves new calls."""
        worker.replaced = True
        worker.fire(WorkerEvent.RETIRE)
        if self._waiting.count:
            self._settle()

    def retire(self, worker: Worker) -> bool:
        """Retire a worker: an idle or starting one now, a busy one after its call. Returns whether it goes now."""
        if worker.state is WorkerState.IDLE:
            self._idle.discard(worker)
        worker.fire(WorkerEvent.RETIRE)
        if worker.state is WorkerState.STOPPING:
            self._let_exit(worker)
        return worker.state in (WorkerState.STOPPING, WorkerState.DEAD)

    def _let_exit(self, worker: Worker) -> None:
        worker.retire(self.grace_seconds)
        self._idle.leave(worker)

    def _end_active(self, worker: Worker, doing: str) -> None:
        """End an idle worker that goes on after its result."""
        logger.warning("%s %s, %s: %s; its cell is ended", worker.id, worker.spec.file.stem, WENT_ON, doing)
        self._idle.discard(worker)
        worker.fire(WorkerEvent.RETIRE)
        worker.cell.end()

    def retire_unlike(self, directory: str, places: AbstractSet[Place]) -> None:
        """Retire the workers of a directory whose cells may write there and do not hold all of these places."""
        for worker in self.workers:
            policy = worker.spec.policy
            if worker.spec.directory == directory and policy.writable and not places <= set(policy.found):
                self.retire(worker)

    def retire_owned(self, owner: str) -> None:
        """Retire the workers of a session that has ended."""
        for worker in [worker for worker in self._workers.values() if worker.spec.owner == owner]:
            self.retire(worker)

    async def aclose(self) -> None:
        """Refuse what waits, retire every worker, and wait until the last cell is empty."""
        for lease in self._waiting.all:
            self._remove(lease)
            lease.granted.set_exception(Refusal(RefusalReason.DRAINING, "the daemon is stopping."))
        for waking in self._wakings.values():
            waking.cancel()
        self._idle.close()
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
        leaving = sum(worker.state is WorkerState.STOPPING for worker in self._workers.values())
        if not (leaving or self._idle or self._shared or len(self._workers) < self.workers_max):
            return
        coming = Counter(worker.row for worker in self._starting if worker.state is not WorkerState.STOPPING)
        running = self._running_by_tool()  # and what is promised to earlier calls
        # The lanes by their next call, each with how many of its calls are passed: they have something on its way.
        turns = [(offers[0], lane, 0) for lane, offers in self._waiting.lanes.items()]
        heapq.heapify(turns)
        while turns:
            (*_, lease), lane, passed = heapq.heappop(turns)
            row, spec, file = lane.row, lane.row.spec, lane.row.spec.file
            if lane.bounded and running[lane.bounded] >= (lease.concurrency or 0):
                continue
            running[lane.bounded] += 1
            if (worker := self._ready(row)) is not None:
                self._grant(lease, worker)
                passed -= 1
            elif coming[row]:
                coming[row] -= 1
            elif spec.serial and not self._may_start(row):
                continue  # its one worker is busy, or is going
            elif (wait := self.quarantine.wait_seconds(file)) > 0:
                self._settle_after(wait, file)
                continue
            elif len(self._workers) < self.workers_max:
                worker = self._make_worker(f"w-{next(self._ids)}", spec, self._changed)
                worker.row = row
                self._workers[worker.id] = worker
                if isinstance(worker, SharedWorker):
                    worker.on_lapse = self._lapsed
                    self._count_start(file.digest)
                    self._shared.add(worker)
                    row.shared = worker
                self._starting.add(worker)
                self._emptied.clear()
                yield lease, worker
            elif leaving:
                leaving -= 1  # there will be room
            elif self._idle:
                self._evict()
            else:
                return
            offers = self._waiting.lanes.get(lane, ())
            if passed + 1 < len(offers):
                heapq.heappush(turns, (offers[passed + 1], lane, passed + 1))

    def _ready(self, row: IdleRow) -> Worker | None:
        """Lease an idle worker of a row, or a place in the one that has other calls; None where there is neither."""
        if (idle := self._idle.take(row)) is not None:
            idle.fire(WorkerEvent.LEASE)
            return idle
        if (shared := row.shared) is not None and shared.has_place:
            shared.fire(WorkerEvent.JOIN)
            shared.others += 1
            return shared
        return None

    def _running_by_tool(self) -> Counter[str]:
        """Count the calls of tools with a bound on concurrency."""
        return sum((worker.bounded for worker in self._shared), Counter(self._running.values()))

    def _may_start(self, row: IdleRow) -> bool:
        """Whether a worker of a row that has one at most may be started: those that are there get no call any more."""
        there = [worker for worker in self._workers.values() if worker.row is row]
        return len(there) <= LEAVING_MAX and all(
            isinstance(worker, SharedWorker) and worker.is_leaving for worker in there
        )

    def _grant(self, lease: Lease, worker: Worker) -> None:
        self._waiting.serve(lease.places, lease)
        if lease.deadline is not None:
            lease.deadline.cancel()
        if lease.concurrency is not None:
            if isinstance(worker, SharedWorker):
                worker.bounded[lease.tool] += 1
            else:
                self._running[worker] = lease.tool
        lease.granted.set_result(worker)

    def _is_full(self, lease: Lease) -> bool:
        """Whether its tool runs as often as it may."""
        if lease.concurrency is None:
            return False
        return self._running_by_tool()[lease.tool] >= lease.concurrency

    def _settle_after(self, seconds: float, file: ToolFile) -> None:
        if file.digest not in self._wakings:
            self._wakings[file.digest] = self._loop.call_later(seconds, self._wake, file.digest)

    def _wake(self, digest: str) -> None:
        del self._wakings[digest]
        self._settle()

    def _evict(self) -> None:
        """Retire the least recently used idle worker; its room comes free when it is gone."""
        wanted = {lane.row for lane in self._waiting.lanes}
        self.retire(min(self._idle, key=lambda worker: (worker.row in wanted, worker.since)))

    # What dies

    def _crashed_by_its_tool(self, worker: Worker) -> None:
        file = worker.spec.file
        if not self.quarantine.died(file, worker.crash_cause, worker.crash_stderr, started=worker.started):
            return
        for lease in [lease for lease in self._waiting.all if lease.row.spec.file.digest == file.digest]:
            self._remove(lease)
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

    def _count_start(self, digest: str) -> None:
        """Count a process of a server; of the entries that were started last there are as many as in quarantine."""
        self.server_starts[digest] = self.server_starts.pop(digest, 0) + 1
        if len(self.server_starts) > FILES_MAX:
            del self.server_starts[next(iter(self.server_starts))]

    def _lapsed(self, worker: SharedWorker) -> None:
        """Retire a worker whose server has ended between calls; one with a call on its way starts the server again."""
        self.quarantine.lapsed(worker.spec.file, started=worker.started)
        if worker.state is WorkerState.IDLE:
            self.retire(worker)

    async def _start(self, worker: Worker, lease: Lease) -> None:
        """Start a worker; what goes wrong is told to the call it was started for, unless we wanted it gone."""
        try:
            await worker.start(self._prefork_for(worker.spec), load_seconds=self.load_seconds)
        except StartFailed as failure:
            if WorkerEvent.RETIRE not in worker.events:
                self._fail(lease, failure)
        except Exception as error:  # noqa: BLE001  # a bug of ours, which must not end the daemon
            self._fail(lease, bug(worker, error))
        finally:
            self._starting.discard(worker)
        if worker.state is WorkerState.IDLE:
            self._idle.add(worker)
        elif worker.state is not WorkerState.DEAD:
            self._let_exit(worker)
        self._settle()

    def _fail(self, lease: Lease, failure: StartFailed) -> None:
        """Tell it to the call that the worker was started for, or to the first of its like."""
        if lease.granted.done():
            lanes = self._waiting.lanes.items()
            alike = [offers[0] for lane, offers in lanes if lane.row is lease.row]
            lease = min(alike).item if alike else lease
        if not lease.granted.done():
            self._remove(lease)
            lease.granted.set_exception(failure)

    def _changed(self, worker: Worker) -> None:
        if worker.state is WorkerState.DEAD and self._workers.pop(worker.id, None) is not None:
            self._idle.discard(worker)
            self._running.pop(worker, None)
            if isinstance(worker, SharedWorker):
                self._shared.discard(worker)
                if worker.row is not None and worker.row.shared is worker:
                    worker.row.shared = None
            if worker.crash_cause:
                self._crashed_by_its_tool(worker)
            if not self._workers:
                self._emptied.set()
            if self._waiting.count:
                self._loop.call_soon(self._settle)
        self._on_change(worker)
