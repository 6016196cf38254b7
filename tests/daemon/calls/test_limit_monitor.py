"""The meter's one timer: wound by what begins, and run out when there is nothing to look at."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolcelld.calls.limit_monitor import LimitMonitor, runs_in
from toolcelld.calls.outcomes.outcome import Stop
from toolcelld.calls.run import Run
from toolcelld.cell.processes.processes import CellProcesses
from toolcelld.cell.processes.usage import CellUsage, Member
from toolcelld.config.resolution.settings import Limits
from toolcelld.pool.worker import Worker
from toolcelld.sessions.registry import Sessions

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Looks:
    """Has no runs, and counts how often it is asked for them."""

    def __init__(self) -> None:
        self.count = 0
        self.came = asyncio.Event()

    def __call__(self) -> list[Run]:
        self.count += 1
        self.came.set()
        return []


async def test_however_many_calls_begin_there_is_one_look_and_none_when_they_have_ended() -> None:
    looks = Looks()
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(looks, tasks)
        for _ in range(1000):
            meter.wake()
        assert looks.count == 0
        await asyncio.wait_for(looks.came.wait(), 60)
        assert looks.count == 1
        assert meter.resting


async def test_a_look_that_found_nothing_is_followed_by_one_for_the_next_call() -> None:
    looks = Looks()
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(looks, tasks)
        for number in (1, 2):
            looks.came.clear()
            meter.wake()
            assert not meter.resting
            await asyncio.wait_for(looks.came.wait(), 60)
            assert looks.count == number


async def test_a_closed_meter_looks_no_more() -> None:
    looks = Looks()
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(looks, tasks)
        meter.wake()
        meter.close()
        assert meter.resting


async def test_a_look_that_stood_still_has_not_worked_and_the_next_one_comes_as_soon_as_ever() -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def runs() -> list[Run]:
        order.append("look")
        if len(order) == 1:
            time.sleep(0.2)  # others have the processors; ten times that are two seconds
            loop.call_later(1.0, order.append, "a second later")
        else:
            over.set()
        return cast("list[Run]", [SimpleNamespace(has_worker=False)])

    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(runs, tasks)
        meter.wake()
        await asyncio.wait_for(over.wait(), 60)
        meter.close()
    assert order[:2] == ["look", "look"]  # in the order of their times, however late both are


def test_a_poll_looks_at_what_workers_have_and_at_no_call_that_waits() -> None:
    run = object.__new__(Run)
    listeners = ((), (run,), (SimpleNamespace(run="a hook's"),))
    workers = [SimpleNamespace(listeners=each) for each in listeners]
    assert runs_in(cast("list[Worker]", workers)) == [run]


async def test_a_registry_polls_the_workers_of_its_pool() -> None:
    asked: list[str] = []

    class Pool:
        @property
        def workers(self) -> list[Worker]:
            asked.append("workers")
            return []

    async with asyncio.TaskGroup() as tasks:
        daemon = SimpleNamespace(max_sessions=1)
        services: Any = SimpleNamespace(pool=Pool(), tasks=tasks, config=SimpleNamespace(daemon=daemon))
        sessions = Sessions(services)
        sessions.limit_monitor._look()  # pyright: ignore[reportPrivateUsage]  # the timer calls it
    assert asked == ["workers"]


MIB = 2**20


class OneRun:
    """A run; unlike namespaces, no two are equal."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Bomb:
    """A call whose cell has one process more, and no less memory, at each look; its exact memory is not read until `free`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, exact_bytes: int, processes: int | None = None
    ) -> None:
        self.pids: list[int] = []
        self.stopped: list[str] = []
        self.over = asyncio.Event()
        self.read = asyncio.Event()
        self.free = threading.Event()
        self._exact_bytes = exact_bytes
        self._loop = asyncio.get_running_loop()
        self.processes = CellProcesses()
        cell = SimpleNamespace(ended=self._loop.create_future(), processes=self.processes)
        self.run: Any = OneRun(
            has_worker=True,
            worker=SimpleNamespace(cell=cell, tmpdir="", several=False),
            begun_at=0.0,
            plan=SimpleNamespace(limits=Limits(memory_bytes=100 * MIB, processes=processes)),
            call=SimpleNamespace(id="bomb", stop=self._stop),
            end_cell=self._end,
        )
        monkeypatch.setattr("toolcelld.cell.processes.processes.measure", self._measure)
        monkeypatch.setattr("toolcelld.cell.processes.processes.measure_exactly", self._measure_exactly)

    def _stop(self, _: Stop) -> None:
        self.over.set()

    def _end(self, stop: Stop) -> None:
        self.stopped.append(stop.cause)

    def runs(self) -> list[Run]:
        return [self.run]

    def _measure(self, *_: object, **__: object) -> CellUsage:
        self.pids.append(2**22 + len(self.pids))  # of no process: the kernel gives no such number
        return CellUsage(tuple(Member(pid, "bomb", 1, 0.0, 60 * MIB) for pid in self.pids), 0.0)

    def _measure_exactly(self, usage: CellUsage) -> CellUsage:
        self._loop.call_soon_threadsafe(self.read.set)
        assert self.free.wait(60)
        return CellUsage((Member(usage.members[0].pid, "bomb", 1, 0.0, self._exact_bytes),), 0.0)


async def test_a_cell_that_keeps_its_memory_from_being_read_is_held_to_its_processes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = Bomb(monkeypatch, exact_bytes=0, processes=3)
    halted: list[int] = []

    def halt(usage: CellUsage) -> None:
        halted.extend(member.pid for member in usage.members)

    monkeypatch.setattr(CellProcesses, "halt", staticmethod(halt))
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(bomb.runs, tasks)
        meter.wake()
        try:
            await asyncio.wait_for(bomb.read.wait(), 60)
            await asyncio.wait_for(bomb.over.wait(), 60)
            assert bomb.processes.is_reading_memory
        finally:
            bomb.free.set()
        meter.close()
    assert bomb.stopped == ["processes"]
    assert halted == bomb.pids


async def test_exact_memory_that_is_over_the_limit_ends_the_cell_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = Bomb(monkeypatch, exact_bytes=101 * MIB)
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(bomb.runs, tasks)
        meter.wake()
        await asyncio.wait_for(bomb.read.wait(), 60)
        meter.close()
        bomb.free.set()
        await asyncio.wait_for(bomb.over.wait(), 60)
    assert bomb.stopped == ["memory"]


async def test_exact_memory_of_a_call_that_has_ended_meanwhile_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = Bomb(monkeypatch, exact_bytes=101 * MIB)
    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(bomb.runs, tasks)
        meter.wake()
        await asyncio.wait_for(bomb.read.wait(), 60)
        meter.close()
        bomb.run.has_worker = False
        bomb.free.set()
        while bomb.processes.is_reading_memory:
            await asyncio.sleep(0.01)  # there is no event
        await asyncio.sleep(0)
    assert bomb.stopped == []


def test_what_is_halted_is_stopped() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        CellProcesses.halt(
            CellUsage((Member(process.pid, "python", 1, 0.0), Member(2**22, "gone", 1, 0.0)), 0.0)
        )
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        process.kill()
    assert os.WIFSTOPPED(status)
