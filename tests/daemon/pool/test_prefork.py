"""Preforked cells: their number is restored after each is taken or fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.zygote import ZygoteFailed
from toolcelld.pool.prefork import READY_MAX, RETRIES_MAX, PreforkedCells

pytestmark = pytest.mark.anyio


class FakeCell:
    """A running cell."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.ended = asyncio.get_running_loop().create_future()

    def pass_on_to(self, receiver: Receiver) -> None:
        self.receiver = receiver


class FakePreforkedCells(PreforkedCells):
    """Preforked cells without a zygote: each fork succeeds or fails at once."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__(cast("Any", None), tasks, cast("Any", None), enclosure="none")
        self.tried = 0
        self.failing = 0
        self.made = asyncio.Event()

    async def _fork_cell(self) -> Cell:
        self.tried += 1
        if self.failing:
            self.failing -= 1
            raise ZygoteFailed("no room")
        self.made.set()
        return cast("Cell", FakeCell())


async def settled() -> None:
    """Run all tasks that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_cell_that_is_taken_as_soon_as_it_is_forked_is_replaced() -> None:
    async with asyncio.TaskGroup() as tasks:
        cells = FakePreforkedCells(tasks)
        cells.prepare()
        await cells.made.wait()  # the callback of its task has not run yet
        await cells.take(Receiver())
        await settled()
        assert cells.ready == READY_MAX


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
