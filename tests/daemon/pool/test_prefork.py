"""Preforked cells: their number is restored after each is taken or fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.zygote import ZygoteFailed
from toolcelld.pool.prefork import READY_MAX, RETRIES_MAX, PreforkedCells
from toolcelld.protocol.frames import Frame
from toolcelld.protocol.messages import PROTOCOL_VERSION
from toolcelld.sandbox.policy import Enclosure

pytestmark = pytest.mark.anyio


class FakeCell:
    """A running cell."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.ended = asyncio.get_running_loop().create_future()
        self.named = asyncio.Event()

    def pass_on_to(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def end(self) -> None:
        self.ended.set_result(None)


class FakePreforkedCells(PreforkedCells):
    """Preforked cells without a zygote: each fork succeeds or fails at once."""

    def __init__(self, tasks: asyncio.TaskGroup, enclosure: Enclosure = "strict") -> None:
        super().__init__(cast("Any", None), tasks, cast("Any", None), enclosure=enclosure)
        self.forked: list[FakeCell] = []
        self.tried = 0
        self.failing = 0
        self.made = asyncio.Event()

    async def _fork_cell(self) -> Cell:
        self.tried += 1
        if self.failing:
            self.failing -= 1
            raise ZygoteFailed("no room")
        self.made.set()
        self.forked.append(FakeCell())
        return cast("Cell", self.forked[-1])


async def settled() -> None:
    """Run all tasks that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_of_cells_without_confinement_none_is_kept_also_where_its_start_was_cancelled() -> None:
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks, "none")
        start = tasks.create_task(cells.take(Receiver()))
        await cells.made.wait()
        start.cancel()
        await settled()
        assert (cells.ready, [cell.ended.done() for cell in cells.forked]) == (0, [True])
        assert not (await cells.take(Receiver())).ended.done()
        await settled()
        assert (cells.ready, len(cells.forked)) == (0, 2)


async def test_a_cell_that_is_taken_as_soon_as_it_is_forked_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcelld.pool.prefork.REFILL_SECONDS", 0.0)
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.prepare()
        await cells.made.wait()  # the callback of its task has not run yet
        await cells.take(Receiver())
        await settled()
        assert cells.ready == READY_MAX


async def test_a_cell_that_was_taken_is_replaced_later_unless_the_next_start_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcelld.pool.prefork.REFILL_SECONDS", 60.0)
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.prepare()
        await settled()
        for _ in range(READY_MAX):
            await cells.take(Receiver())
        await settled()
        assert (cells.ready, len(cells.forked)) == (0, READY_MAX)
        await cells.take(Receiver())
        await settled()
        assert cells.ready == READY_MAX
        await cells.aclose()


async def test_a_failed_fork_is_retried_while_no_start_waits() -> None:
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.failing = RETRIES_MAX
        cells.prepare()
        await settled()
        assert cells.ready == READY_MAX


async def test_a_fork_that_fails_often_is_retried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcelld.pool.prefork.RETRY_SECONDS_MAX", 0.01)
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.failing = 3 * RETRIES_MAX + 2 * READY_MAX
        cells.prepare()
        await cells.made.wait()
        await settled()
        assert cells.ready == READY_MAX


async def test_a_permanent_failure_is_rarely_retried_and_reported_to_waiting_starts() -> None:
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.failing = 1000
        cells.prepare()
        await settled()
        tried = cells.tried
        assert RETRIES_MAX < tried <= RETRIES_MAX + 2 * READY_MAX
        await settled()
        assert (cells.ready, cells.tried) == (0, tried)
        with pytest.raises(ZygoteFailed, match="no room"):
            await cells.take(Receiver())


async def test_a_worker_that_never_says_hello_is_ended_and_its_start_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[FakeCell] = []

    async def start(*_: object, **__: object) -> FakeCell:
        started.append(FakeCell())
        return started[-1]

    monkeypatch.setattr(Cell, "start", start)
    monkeypatch.setattr("toolcelld.pool.prefork.HELLO_SECONDS_MAX", 0.0)
    async with asyncio.TaskGroup() as tasks:
        cells = PreforkedCells(cast("Any", None), tasks, cast("Any", None), enclosure="none")
        with pytest.raises(ZygoteFailed, match="was not ready within 0 s"):
            await cells.take(Receiver())
        await cells.aclose()
    assert [cell.ended.done() for cell in started] == [True]


async def test_a_cell_is_taken_only_when_its_keeper_has_said_which_process_is_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[FakeCell] = []

    async def start(_: object, receiver: Receiver, **__: object) -> FakeCell:
        started.append(FakeCell())
        receiver.on_frame(
            Frame({"type": "hello", "protocol": PROTOCOL_VERSION, "pid": 1, "python": "3"}, b"")
        )
        return started[-1]

    monkeypatch.setattr(Cell, "start", start)
    async with asyncio.TaskGroup() as tasks:
        cells = PreforkedCells(cast("Any", None), tasks, cast("Any", None), enclosure="none")
        taken = tasks.create_task(cells.take(Receiver()))
        await settled()
        assert not taken.done()
        started[0].named.set()
        assert await taken is cast("Any", started[0])
        await cells.aclose()
