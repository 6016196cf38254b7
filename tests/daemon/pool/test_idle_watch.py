"""What an idle worker is stopped and ended for, by the figures of the kernel; real ones are in `tests/hostile`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from toolcelld.pool import idle_watch
from toolcelld.pool.idle_watch import CLEANUP_NS, IdleWatch
from toolcelld.pool.worker import Worker

pytestmark = pytest.mark.anyio

SECONDS_MAX = 20


@dataclass
class Processes:
    """Those of a worker, whose main thread has used so much at each look."""

    used: list[int]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    builders: tuple[int, ...] = ()
    workers: tuple[int, ...] = (1,)
    running: bool = False

    def main_thread_nanoseconds(self) -> int:
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]

    def used_nanoseconds(self) -> int:
        return self.used[0]

    def is_running(self) -> bool:
        return self.running

    def stop_worker(self) -> None:
        self.stopped.set()


class Idle:
    """An idle worker."""

    def __init__(self, used: list[int]) -> None:
        self.pid = 1
        self.is_forking = False
        self.spec: Any = type("Spec", (), {"is_server": False})()
        self.cell: Any = type("Cell", (), {"processes": Processes(used)})()


async def test_the_worker_of_a_server_is_not_stopped_and_looked_at_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = asyncio.Semaphore(0)

    def look(*_: object) -> str:
        looks.release()
        return ""

    monkeypatch.setattr(idle_watch, "_over_limit", look)
    monkeypatch.setattr(idle_watch, "STOPPED_SECONDS", 0.01)
    worker = Idle([0, 5 * CLEANUP_NS, 10 * CLEANUP_NS])
    worker.spec.is_server = True
    active: list[str] = []
    watch = IdleWatch(cast("dict[Worker, float]", {worker: 0.0}), lambda _, doing: active.append(doing))
    watch.wake()
    async with asyncio.timeout(SECONDS_MAX):
        for _ in range(3):
            await looks.acquire()
            assert not watch.hurried
    watch.forget(cast("Worker", worker))
    watch.close()
    assert (active, worker.cell.processes.stopped.is_set()) == ([], False)


@pytest.mark.parametrize(
    ("used", "running", "ended"),
    [
        ([0, 0, 0], False, False),
        ([0, CLEANUP_NS, CLEANUP_NS], False, False),
        # Once, as if a hypervisor had taken the processor.
        ([0, 5 * CLEANUP_NS, 5 * CLEANUP_NS], False, False),
        ([0, 5 * CLEANUP_NS, 10 * CLEANUP_NS, 10 * CLEANUP_NS], False, True),
        ([0, 2 * CLEANUP_NS, 2 * CLEANUP_NS, 4 * CLEANUP_NS], False, True),  # until it was stopped
        # With little of the processor of a loaded machine, a bit more at each look.
        ([at * CLEANUP_NS // 2 for at in range(7)], True, True),
    ],
)
async def test_a_worker_that_goes_on_is_ended_and_one_that_was_slow_to_end_is_stopped(
    used: list[int], running: bool, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> str:
        return ""

    def alone(*_: object) -> Any:
        return type("CellUsage", (), {"members": ()})

    monkeypatch.setattr(idle_watch, "_over_limit", nothing)
    monkeypatch.setattr(idle_watch, "measure", alone)
    worker = Idle(used)
    worker.cell.processes.running = running
    active: list[str] = []
    watch = IdleWatch(cast("dict[Worker, float]", {worker: 0.0}), lambda _, doing: active.append(doing))
    watch.wake()
    async with asyncio.timeout(SECONDS_MAX):
        await worker.cell.processes.stopped.wait()
    watch.close()
    assert [doing.startswith("it used ") for doing in active] == ([True] if ended else [])
