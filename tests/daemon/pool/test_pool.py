"""The pool's decisions, with workers that start and end when the test says so."""

from __future__ import annotations

import asyncio
import math
import sys
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.fair_queue import Places
from toolcelld.pool.pool import LEAVING_MAX, Pool
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.quarantine import DEATHS_MAX, Quarantine
from toolcelld.pool.shared_worker import SharedWorker
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.sandbox.policy import OPEN, CellLimits

pytestmark = pytest.mark.anyio


class FakeWorker(Worker):
    """A worker without a cell: the test hatches it, breaks it and kills it."""

    born: list[FakeWorker]

    def __init__(self, worker_id: str, spec: CellSpec, on_change: Callable[[Worker], None]) -> None:
        super().__init__(worker_id, spec, on_change)
        self.hatched: asyncio.Future[Description] = asyncio.get_running_loop().create_future()
        self.since = float(len(self.born))
        self.born.append(self)

    async def start(
        self, prefork: PreforkedCells, *, load_seconds: float, describe: bool = False
    ) -> Description:
        description = await self.hatched
        if self.state is WorkerState.STARTING:
            self.fire(WorkerEvent.HELLO)
        return description

    def retire(self, grace_seconds: float) -> None:
        """It goes when the test says `die`."""

    def hatch(self) -> None:
        self.hatched.set_result(Description())

    def fail(self) -> None:
        """As a real one: the cell is gone before the failure is told."""
        self.die()
        self.hatched.set_exception(StartFailed("import", "no module"))

    def die(self) -> None:
        self.fire(WorkerEvent.EXIT)


MADE: type[FakeWorker] = FakeWorker
"""What a pool makes; a fixture changes it."""


@pytest.fixture(autouse=True)
def workers() -> list[FakeWorker]:
    FakeWorker.born = []
    PLACES.served = PLACES.rank = 0  # as of a session that no pool has served yet
    return FakeWorker.born


def spec(name: str, *, serial: bool = False) -> CellSpec:
    file = ToolFile(
        path=f"/{name}.py",
        source="project",
        scope="local",
        stem=name,
        content=b"",
        digest=name,
        directory="/",
    )
    return CellSpec(file, "/", (), CellLimits(), OPEN, serial=serial)


@asynccontextmanager
async def a_pool(
    workers: list[FakeWorker],
    workers_max: int = 2,
    quarantine: Quarantine | None = None,
    shut_out: list[str] | None = None,
) -> AsyncGenerator[Pool]:
    """A pool whose workers all end with it."""
    told = shut_out if shut_out is not None else []
    async with asyncio.TaskGroup() as tasks:
        pool = Pool(
            lambda _: cast("Any", None),
            tasks,
            workers_max=workers_max,
            idle_seconds=3600,
            grace_seconds=1,
            load_seconds=10,
            on_shut_out=lambda held: told.append(held.path),
            quarantine=quarantine,
            make_worker=MADE,
        )
        yield pool
        for worker in workers:
            if not worker.hatched.done():
                worker.hatch()
        await settled()
        closing = tasks.create_task(pool.aclose())
        await settled()
        for living in pool.workers:
            assert isinstance(living, FakeWorker)
            living.die()
        await closing


async def settled() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


PLACES = Places(1_000_000)
"""Of a session that may run as many calls as it likes."""


async def leased(
    pool: Pool, wanted: CellSpec, queue_seconds: float | None = None, places: Places = PLACES, **tool: Any
) -> Worker:
    """A worker; cancelling withdraws the lease, at whichever moment."""
    lease = pool.lease(pool.row(wanted), places, queue_seconds, **tool)
    try:
        return await asyncio.shield(lease.granted)
    except asyncio.CancelledError:
        pool.withdraw(lease)
        raise


def ask(
    pool: Pool, wanted: CellSpec, queue_seconds: float | None = None, places: Places = PLACES
) -> asyncio.Task[Worker]:
    return asyncio.ensure_future(leased(pool, wanted, queue_seconds, places))


async def test_a_worker_is_started_for_a_call_and_used_again(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        first = ask(pool, spec("a"))
        await settled()
        workers[0].hatch()
        assert await first is workers[0]
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        assert await leased(pool, spec("a"), None) is workers[0]
        assert len(workers) == 1
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)


async def test_calls_get_workers_in_order_of_arrival(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=1) as pool:
        first, second, third = (ask(pool, spec("a")) for _ in range(3))
        await settled()
        workers[0].hatch()
        for lease in (first, second, third):
            assert await lease is workers[0]
            pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        assert len(workers) == 1


async def test_a_serial_spec_has_one_worker_at_most(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=8) as pool:
        leases = [ask(pool, spec("a", serial=True)) for _ in range(3)]
        await settled()
        assert len(workers) == 1
        workers[0].hatch()
        await leases[0]
        workers[0].die()  # and takes its state with it
        await settled()
        assert len(workers) == 2
        workers[1].hatch()
        assert await leases[1] is workers[1]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)
        assert await leases[2] is workers[1]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)


async def test_who_has_been_idle_too_long_goes_and_nobody_else(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pool(workers) as pool:
        loop = asyncio.get_running_loop()
        for name in ("a", "b"):
            leased = ask(pool, spec(name))
            await settled()
            workers[-1].hatch()
            pool.give_back(await leased, WorkerEvent.DONE, PLACES)
            now = loop.time() + 100
            monkeypatch.setattr(loop, "time", lambda now=now: now)
        pool.keep_idle(150)
        assert [worker.state for worker in workers] == [WorkerState.STOPPING, WorkerState.IDLE]
        pool.keep_idle(250)
        assert workers[1].state is WorkerState.IDLE


async def test_the_least_recently_used_idle_worker_makes_room(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        for name in ("a", "b"):
            lease = ask(pool, spec(name))
            await settled()
            workers[-1].hatch()
            pool.give_back(await lease, WorkerEvent.DONE, PLACES)
        workers[0].since, workers[1].since = 2.0, 1.0
        lease = ask(pool, spec("c"))
        await settled()
        assert [worker.state for worker in workers] == [WorkerState.IDLE, WorkerState.STOPPING]
        workers[1].die()
        await settled()
        workers[2].hatch()
        pool.give_back(await lease, WorkerEvent.DONE, PLACES)


async def test_a_full_pool_of_busy_workers_refuses_after_the_queue_time(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=1) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        workers[0].hatch()
        await lease
        with pytest.raises(Refusal) as caught:
            await leased(pool, spec("b"), 0.0)
        assert caught.value.reason is RefusalReason.BUSY
        assert pool.waiting == 0
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)


async def test_a_failed_start_is_told_to_its_call_and_starts_no_other(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        workers[0].die()  # the cell has ended; that the start has failed is known a moment later
        await settled()
        assert len(workers) == 1
        workers[0].hatched.set_exception(StartFailed("import", "no module"))
        with pytest.raises(StartFailed, match="no module"):
            await lease
        await settled()
        assert len(workers) == 1


async def test_each_call_is_told_of_a_failed_start_of_its_own(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        leases = [ask(pool, spec("a")) for _ in range(2)]
        await settled()
        assert len(workers) == 2
        workers[1].fail()
        await settled()
        assert [lease.done() for lease in leases] == [False, True]
        workers[0].fail()
        for lease in leases:
            with pytest.raises(StartFailed):
                await lease


async def test_a_worker_retired_while_it_starts_is_replaced_for_the_call_that_waits(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        pool.retire(workers[0])
        workers[0].fail()  # as retiring ends a cell that is still loading
        await settled()
        assert not lease.done()
        workers[1].hatch()
        assert await lease is workers[1]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)


async def test_a_start_that_is_being_given_up_disturbs_no_other_call(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=3) as pool:
        leases = [ask(pool, spec("a"))]
        await settled()
        pool.retire(workers[0])
        leases.append(ask(pool, spec("b")))
        await settled()
        assert [worker.spec.file.stem for worker in workers] == ["a", "a", "b"]
        for worker in workers[1:]:
            worker.hatch()
        for lease in leases:
            pool.give_back(await lease, WorkerEvent.DONE, PLACES)


async def test_a_worker_on_its_way_for_a_call_that_gave_up_serves_the_next(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        first = ask(pool, spec("a"))
        await settled()
        first.cancel()
        second = ask(pool, spec("a"))
        await settled()
        assert len(workers) == 1
        workers[0].hatch()
        assert await second is workers[0]
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)


async def test_a_worker_granted_to_a_call_that_is_being_cancelled_goes_back(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        workers[0].hatch()
        for _ in range(20):
            if workers[0].state is not WorkerState.BUSY:
                await asyncio.sleep(0)
        assert not lease.done()  # it has the worker and does not know it yet
        lease.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lease
        assert workers[0].state is WorkerState.IDLE


async def test_a_call_does_not_wait_behind_later_ones_of_a_tool_that_is_warm(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers, workers_max=1) as pool:
        warm = ask(pool, spec("warm"))
        await settled()
        workers[0].hatch()
        await warm
        other = ask(pool, spec("other"))
        later = ask(pool, spec("warm"))
        await settled()
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        await settled()
        assert not later.done()
        assert workers[0].state is WorkerState.STOPPING
        workers[0].die()
        await settled()
        workers[1].hatch()
        assert await other is workers[1]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)
        await settled()
        workers[1].die()
        await settled()
        workers[2].hatch()
        assert await later is workers[2]
        pool.give_back(workers[2], WorkerEvent.DONE, PLACES)


async def test_sessions_take_turns_where_the_pool_is_full(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=1) as pool:
        order: list[str] = []
        places = {session: Places(1000) for session in "xyz"}

        async def call(session: str) -> None:
            worker = await leased(pool, spec("a"), places=places[session])
            order.append(session)
            pool.give_back(worker, WorkerEvent.DONE, places[session])

        calls = [asyncio.ensure_future(call(session)) for session in "xxxxxyz"]
        await settled()
        workers[0].hatch()
        await asyncio.gather(*calls)
        assert order == ["x", "y", "z", "x", "x", "x", "x"]


async def test_a_session_runs_as_many_calls_as_it_has_places_and_others_pass_it(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers, workers_max=8) as pool:
        places = Places(1)
        first, second, third = (ask(pool, spec("a"), places=places) for _ in range(3))
        await settled()
        assert (len(workers), places.queued) == (1, 2)
        workers[0].hatch()
        await first
        with pytest.raises(Refusal, match="as many calls at once as it may") as refused:
            await ask(pool, spec("a"), 0.01, places)
        assert (refused.value.reason, refused.value.quota) == (
            RefusalReason.BUSY,
            "[daemon] calls_per_session",
        )
        other = ask(pool, spec("b"))
        await settled()
        workers[1].hatch()
        assert (await other).spec == spec("b")
        pool.give_place(places)  # a question is open
        await settled()
        workers[2].hatch()
        assert await second is workers[2]
        places.take()  # it is answered
        pool.give_back(workers[2], WorkerEvent.DONE, places)
        await settled()
        assert not third.done()
        pool.give_back(workers[0], WorkerEvent.DONE, places)
        assert await third in workers
        pool.give_back(await third, WorkerEvent.DONE, places)
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)
        assert (places.free, places.waiting) == (1, 0)


async def test_a_warm_worker_is_not_leased_past_those_that_wait_for_a_place(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        workers[0].hatch()
        pool.give_back(await lease, WorkerEvent.DONE, PLACES)
        places = Places(1)
        waiting = ask(pool, spec("b"), places=places)
        await settled()
        assert pool.lease_now(pool.row(spec("a")), places) is None
        assert pool.lease_now(pool.row(spec("a")), Places(0)) is None
        assert pool.lease_now(pool.row(spec("a")), PLACES) is workers[0]
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        waiting.cancel()


async def test_one_time_out_holds_for_the_whole_wait(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=1) as pool:
        places = Places(1)
        first = ask(pool, spec("a"), places=places)
        await settled()
        workers[0].hatch()
        await first
        neighbour = ask(pool, spec("a"))
        await settled()
        lease = pool.lease(pool.row(spec("a")), places, 5.0)
        assert lease.deadline is not None
        deadline = lease.deadline
        pool.give_place(places)  # it has its place now, and waits for a worker
        assert lease.deadline is deadline
        assert not deadline.cancelled()
        pool.give_back(workers[0], WorkerEvent.DONE, Places(1))
        pool.give_back(await neighbour, WorkerEvent.DONE, PLACES)
        pool.give_back(await lease.granted, WorkerEvent.DONE, places)
        assert deadline.cancelled()


async def test_a_tool_runs_as_often_as_it_may_and_others_pass_it(workers: list[FakeWorker]) -> None:
    async with a_pool(workers, workers_max=8) as pool:

        def one_at_a_time(queue_seconds: float | None) -> asyncio.Task[Worker]:
            return asyncio.ensure_future(leased(pool, spec("a"), queue_seconds, tool="a", concurrency=1))

        first, second = one_at_a_time(None), one_at_a_time(None)
        await settled()
        workers[0].hatch()
        await first
        with pytest.raises(Refusal, match="concurrency") as refused:
            await one_at_a_time(0.01)
        assert (refused.value.reason, refused.value.quota) == (RefusalReason.BUSY, "a: 1")
        assert refused.value.retry_seconds
        other = ask(pool, spec("b"))
        await settled()
        workers[1].hatch()
        assert (await other).spec == spec("b")
        assert not second.done()
        workers[0].die()  # a place comes free however the call ends
        await settled()
        workers[2].hatch()
        assert await second is workers[2]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)
        pool.give_back(workers[2], WorkerEvent.DONE, PLACES)


@pytest.mark.parametrize("files", [1, 5])
async def test_what_an_event_costs_does_not_grow_with_what_waits(
    workers: list[FakeWorker], files: int
) -> None:
    steps = {waiting: await steps_of_an_event(workers, waiting, files) for waiting in (10, 100, 1000)}
    assert steps[1000] <= steps[100] * 1.1, steps
    # Of ten calls the last ones find fewer files that others wait for.
    assert steps[100] <= steps[10] * 1.5, steps


async def steps_of_an_event(workers: list[FakeWorker], waiting: int, files: int) -> float:
    """Count the functions that run while one call after the other ends, for each of them.

    Args:
        workers: `FakeWorker.born`, which is emptied.
        waiting: How many calls wait.
        files: How many files their tools are in.
    """
    workers.clear()
    specs = [spec(f"tool{number}") for number in range(files)]
    steps, ended = 0, 9

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    async with a_pool(workers, workers_max=2) as pool:
        places = [Places(8) for _ in range(waiting // 10 + 1)]
        leases = [
            pool.lease(pool.row(specs[number % files]), places[number // 10], None)
            for number in range(waiting + ended)
        ]
        await settled()
        for _ in range(ended):
            worker = next(worker for worker in workers if worker.state is not WorkerState.DEAD)
            if not worker.hatched.done():
                worker.hatch()
            await settled()
            if worker.state is WorkerState.STOPPING:
                worker.die()
                await settled()
                continue
            lease = next(
                lease for lease in leases if lease.granted.done() and lease.granted.result() is worker
            )
            leases.remove(lease)
            sys.setprofile(count)
            pool.give_back(worker, WorkerEvent.DONE, lease.places)
            sys.setprofile(None)
            await settled()
        for lease in leases:
            pool.withdraw(lease)
    return steps / ended


async def test_sessions_of_one_directory_share_a_row_while_one_of_them_keeps_it(
    workers: list[FakeWorker],
) -> None:
    async with a_pool(workers) as pool:
        kept = pool.row(spec("a"))
        assert pool.row(spec("a")) is kept
        assert pool.row(spec("b")) is not kept
        gone = weakref.ref(kept)
        del kept
        assert gone() is None
        another = spec("a")
        assert pool.row(another).spec is another


async def test_a_full_queue_says_when_to_come_again(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcelld.pool.pool.WAITING_MAX", 2)
    async with a_pool(workers, workers_max=1) as pool:
        waiting = [ask(pool, spec("a")) for _ in range(2)]
        await settled()
        with pytest.raises(Refusal) as refused:
            await leased(pool, spec("a"), None)
        assert refused.value.reason is RefusalReason.BUSY
        assert refused.value.retry_seconds
        for lease in waiting:
            lease.cancel()
        await settled()
        assert not pool.waiting


async def test_what_dies_of_its_tool_is_started_again_only_after_its_wait(workers: list[FakeWorker]) -> None:
    now = 0.0
    quarantine = Quarantine(lambda: now, lambda _, high: high)
    async with a_pool(workers, quarantine=quarantine) as pool:
        quarantine.died(spec("sick").file, "SIGSEGV", "", started=math.inf)
        quarantine.died(spec("sick").file, "SIGSEGV", "", started=math.inf)
        sick, well = ask(pool, spec("sick")), ask(pool, spec("well"))
        await settled()
        assert [worker.spec for worker in workers] == [spec("well")]
        workers[0].hatch()
        await well
        now += quarantine.wait_seconds(spec("sick").file)
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        await settled()
        workers[1].hatch()
        assert await sick is workers[1]
        pool.give_back(workers[1], WorkerEvent.DONE, PLACES)
        assert not quarantine.wait_seconds(spec("sick").file), "a call ended well"


async def test_the_last_death_refuses_who_waits_and_ends_who_is_idle_and_nobody_else(
    workers: list[FakeWorker],
) -> None:
    told: list[str] = []
    quarantine = Quarantine(jitter=lambda low, _: low)
    async with a_pool(workers, 3, quarantine, told) as pool:
        running = [ask(pool, spec("sick")) for _ in range(3)]
        await settled()
        for worker in workers:
            worker.hatch()
        await asyncio.gather(*running)
        pool.give_back(workers[0], WorkerEvent.DONE, PLACES)
        for _ in range(DEATHS_MAX - 1):
            quarantine.died(spec("sick").file, "SIGSEGV", "", started=math.inf)
        waiting, neighbour = ask(pool, spec("sick", serial=True)), ask(pool, spec("well"))
        await settled()
        workers[1].crash_cause, workers[1].started = (
            "SIGSEGV",
            math.inf,
        )  # not of a generation that is counted
        workers[1].die()
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.reason is RefusalReason.QUARANTINED
        with pytest.raises(Refusal, match="quarantine"):
            await leased(pool, spec("sick"), None)
        assert told == ["/sick.py"]
        assert workers[0].state is WorkerState.STOPPING
        pool.give_back(workers[2], WorkerEvent.DONE, PLACES)
        assert workers[2].state is WorkerState.STOPPING, "it may end its call, and no more"
        workers[0].die()
        await settled()
        workers[-1].hatch()
        pool.give_back(await neighbour, WorkerEvent.DONE, PLACES)


@pytest.mark.parametrize("crash_cause", ["", "SIGSEGV"])
async def test_a_death_counts_where_it_was_the_tools_own_doing(
    workers: list[FakeWorker], crash_cause: str
) -> None:
    quarantine = Quarantine(jitter=lambda low, _: low)
    async with a_pool(workers, quarantine=quarantine) as pool:
        for n in range(DEATHS_MAX):
            lease = ask(pool, spec("a"))
            await settled()
            workers[n].hatch()
            await lease
            workers[n].crash_cause = crash_cause
            workers[n].die()
            await settled()
        assert quarantine.holds(spec("a").file) is bool(crash_cause)


async def test_closing_refuses_who_waits_and_waits_for_who_lives(workers: list[FakeWorker]) -> None:
    async with a_pool(workers) as pool:
        lease = ask(pool, spec("a"))
        await settled()
        closing = asyncio.ensure_future(pool.aclose())
        with pytest.raises(Refusal) as caught:
            await lease
        assert caught.value.reason is RefusalReason.DRAINING
        assert pool.waiting == 0
        assert not closing.done()
        workers[0].fail()
        await closing
        assert pool.workers == []


PLACES_MAX = 2
"""Of the session in `Lives`: fewer than it may have workers."""


class Lives:
    """Random lives in a pool; what a test holds is here, so that nothing is forgotten."""

    def __init__(self, pool: Pool, workers: list[FakeWorker]) -> None:
        self.pool = pool
        self.workers = workers
        self.places = Places(PLACES_MAX)
        self.leases: list[asyncio.Task[Worker]] = []
        self.held: list[Worker] = []
        self.asking: list[Worker] = []

    def ask(self, number: int) -> None:
        kinds = (spec("a"), spec("b"), spec("s", serial=True))
        self.leases.append(ask(self.pool, kinds[number % len(kinds)], places=self.places))

    def question(self, number: int) -> None:
        if self.held:
            self.asking.append(self.held.pop(number % len(self.held)))
            self.pool.give_place(self.places)

    def answer(self, number: int) -> None:
        if self.asking:
            self.held.append(self.asking.pop(number % len(self.asking)))
            self.places.take()

    def hatch(self, number: int) -> None:
        if unborn := self.unborn():
            unborn[number % len(unborn)].hatch()

    def fail(self, number: int) -> None:
        if unborn := self.unborn():
            unborn[number % len(unborn)].fail()

    def done(self, number: int) -> None:
        if self.held:
            self.pool.give_back(self.held.pop(number % len(self.held)), WorkerEvent.DONE, self.places)

    def spent(self, number: int) -> None:
        if self.held:
            self.pool.give_back(self.held.pop(number % len(self.held)), WorkerEvent.SPENT, self.places)

    def cancel(self, number: int) -> None:
        if self.leases:
            self.leases[number % len(self.leases)].cancel()  # at whichever await it stands

    def die(self, number: int) -> None:
        born = [
            worker
            for worker in self.workers
            if worker.hatched.done() and worker.state is not WorkerState.DEAD
        ]
        if born:
            born[number % len(born)].die()

    def retire(self, number: int) -> None:
        if alive := self.pool.workers:
            self.pool.retire(alive[number % len(alive)])

    def unborn(self) -> list[FakeWorker]:
        return [worker for worker in self.workers if not worker.hatched.done()]

    def look(self) -> None:
        """Take what was granted, and check what must be so at every moment."""
        for lease in [lease for lease in self.leases if lease.done()]:
            self.leases.remove(lease)
            if not lease.cancelled() and lease.exception() is None:
                self.held.append(lease.result())
        alive = self.pool.workers
        assert len(alive) <= self.pool.workers_max
        assert sum(worker.spec.serial for worker in alive) <= 1
        assert self.places.free <= PLACES_MAX
        assert self.places.waiting == self.pool.waiting

    async def finish(self) -> None:
        """Release all workers; what still waits then was forgotten."""
        for _ in range(10 * (len(self.leases) + len(self.workers)) + 10):
            await settled()
            self.look()
            leaving = [worker for worker in self.workers if worker.state is WorkerState.STOPPING]
            if self.asking:
                self.answer(0)
            elif self.held:
                self.done(0)
            elif self.unborn():
                self.hatch(0)
            elif leaving:
                leaving[0].die()
            elif not self.leases:
                return


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "ask",
                    "ask",
                    "hatch",
                    "fail",
                    "done",
                    "spent",
                    "cancel",
                    "die",
                    "retire",
                    "question",
                    "answer",
                ]
            ),
            st.integers(0, 5),
        ),
        max_size=50,
    ),
    st.integers(1, 3),
)
async def test_whatever_happens_no_worker_and_no_call_is_forgotten(
    steps: list[tuple[str, int]], workers_max: int
) -> None:
    workers = FakeWorker.born = []
    async with a_pool(workers, workers_max) as pool:
        lives = Lives(pool, workers)
        for what, number in steps:
            getattr(lives, what)(number)
            for _ in range(number):  # also in the middle of things
                await asyncio.sleep(0)
            lives.look()
        await lives.finish()
        assert lives.leases == []
        assert (lives.places.free, lives.places.waiting) == (PLACES_MAX, 0), (
            "no place is lost, and none is made"
        )
        assert {worker.state for worker in workers} <= {WorkerState.IDLE, WorkerState.DEAD}


class FakeShared(FakeWorker, SharedWorker):
    """A fake with three places."""

    def __init__(self, worker_id: str, spec: CellSpec, on_change: Callable[[Worker], None]) -> None:
        super().__init__(worker_id, spec, on_change)
        self.places = 3


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, workers: list[FakeWorker]) -> list[FakeWorker]:
    """The workers of a pool whose workers all take several calls."""
    monkeypatch.setattr(sys.modules[__name__], "MADE", FakeShared)
    return workers


async def test_calls_share_a_worker_as_far_as_it_has_places(shared: list[FakeWorker]) -> None:
    async with a_pool(shared, workers_max=1) as pool:
        server = spec("server", serial=True)
        calls = [asyncio.create_task(leased(pool, server)) for _ in range(5)]
        await settled()
        shared[0].hatch()
        await settled()
        assert [call.done() for call in calls] == [True, True, True, False, False]
        assert {call.result() for call in calls[:3]} == {shared[0]}
        pool.give_back(shared[0], WorkerEvent.DONE, PLACES)
        await settled()
        assert calls[3].done()
        for _ in range(3):
            pool.give_back(shared[0], WorkerEvent.DONE, PLACES)
        await settled()
        assert calls[4].done()
        pool.give_back(shared[0], WorkerEvent.DONE, PLACES)
        assert shared[0].state is WorkerState.IDLE
        assert len(shared) == 1


async def test_a_worker_that_is_replaced_gets_no_call_and_another_serves_new_ones(
    shared: list[FakeWorker],
) -> None:
    async with a_pool(shared, workers_max=9) as pool:
        server = spec("server", serial=True)
        for generation in range(LEAVING_MAX + 1):
            call = asyncio.create_task(leased(pool, server))
            await settled()
            shared[generation].hatch()
            worker = await call
            assert worker is shared[generation]
            assert isinstance(worker, SharedWorker)
            pool.replace(worker)
            assert worker.state is WorkerState.LAST
        late = asyncio.create_task(leased(pool, server))
        await settled()
        assert len(shared) == LEAVING_MAX + 1, "a further process, though so many are drained"
        pool.give_back(shared[0], WorkerEvent.DONE, PLACES)
        assert shared[0].state is WorkerState.STOPPING
        shared[0].die()
        await settled()
        shared[-1].hatch()
        assert await late is shared[-1]
        assert len(shared) == LEAVING_MAX + 2


async def test_a_server_that_ends_between_calls_is_started_again_only_after_its_wait(
    shared: list[FakeWorker],
) -> None:
    now = 0.0
    quarantine = Quarantine(lambda: now, lambda _, high: high)
    server = spec("server", serial=True)
    async with a_pool(shared, quarantine=quarantine) as pool:
        for ends in range(2):
            call = ask(pool, server)
            await settled()
            worker = shared[ends]
            worker.hatch()
            await call
            pool.give_back(worker, WorkerEvent.DONE, PLACES)
            assert isinstance(worker, SharedWorker)
            worker.started = now
            worker.on_lapse(worker)
            assert worker.state is WorkerState.STOPPING
            worker.die()
        late = ask(pool, server)
        await settled()
        assert len(shared) == 2, "it was started without its wait"
        now += quarantine.wait_seconds(server.file)
        other = ask(pool, spec("other"))
        await settled()
        for worker in shared[2:]:
            worker.hatch()
        assert [(await late).spec, (await other).spec] == [server, spec("other")]


async def test_a_server_that_ends_while_a_call_is_on_its_way_keeps_its_worker(
    shared: list[FakeWorker],
) -> None:
    async with a_pool(shared) as pool:
        call = ask(pool, spec("server", serial=True))
        await settled()
        shared[0].hatch()
        worker = await call
        assert isinstance(worker, SharedWorker)
        worker.on_lapse(worker)
        assert worker.state is WorkerState.BUSY
        pool.give_back(worker, WorkerEvent.DONE, PLACES)


async def test_a_call_that_is_unconfirmed_says_nothing_of_the_health_of_its_server(
    shared: list[FakeWorker],
) -> None:
    server = spec("server", serial=True)
    async with a_pool(shared) as pool:
        for unconfirmed in (True, False):
            pool.quarantine.died(server.file, "SIGSEGV", "", started=math.inf)
            call = ask(pool, server)
            await settled()
            if not shared[-1].hatched.done():
                shared[-1].hatch()
            pool.give_back(await call, WorkerEvent.DONE, PLACES, unconfirmed=unconfirmed)
            assert (server.file.digest in pool.quarantine.records) is unconfirmed


async def test_a_place_that_is_withdrawn_is_free_again_and_the_tool_runs_as_often_as_it_may(
    shared: list[FakeWorker],
) -> None:
    async with a_pool(shared, workers_max=1) as pool:
        server = spec("server", serial=True)
        first = asyncio.create_task(leased(pool, server))
        await settled()
        shared[0].hatch()
        await first
        bounded = pool.lease(pool.row(server), PLACES, None, tool="one", concurrency=1)
        assert bounded.granted.done()
        second = pool.lease(pool.row(server), PLACES, None, tool="one", concurrency=1)
        assert not second.granted.done()
        pool.withdraw(bounded)
        await settled()
        assert second.granted.done()
        worker = second.granted.result()
        assert isinstance(worker, SharedWorker)
        pool.unbind(worker, "one")
        for _ in range(2):
            pool.give_back(worker, WorkerEvent.DONE, PLACES)
        assert (worker.state, worker.bounded["one"]) == (WorkerState.IDLE, 0)


async def test_a_call_for_which_a_server_has_no_place_is_told_so(shared: list[FakeWorker]) -> None:
    async with a_pool(shared, workers_max=2) as pool:
        server = spec("server", serial=True)
        calls = [asyncio.create_task(leased(pool, server)) for _ in range(3)]
        await settled()
        shared[0].hatch()
        await asyncio.gather(*calls)
        with pytest.raises(Refusal) as refused:
            await leased(pool, server, 0.0)
        assert "has 3 calls at once, as it may" in refused.value.message
        assert "[source.project] concurrency" in refused.value.message
        for _ in calls:
            pool.give_back(shared[0], WorkerEvent.DONE, PLACES)
