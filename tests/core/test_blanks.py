"""Cells that are built ahead of need: as many as shall be there are there again, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.zygote import ZygoteFailed
from toolcelld.pool.prefork import READY_MAX, RETRIES_MAX, PreforkedCells

pytestmark = pytest.mark.anyio


class FakeCell:
    """A cell that lives."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.ended = asyncio.get_running_loop().create_future()


class Workshop(PreforkedCells):
    """Blanks without a zygote; each is made, or not, the moment that it is wanted."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__(cast("Any", None), tasks, cast("Any", None), apart=False)
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
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_that_is_taken_the_moment_it_is_made_is_made_again() -> None:
    async with asyncio.TaskGroup() as tasks:
        blanks = Workshop(tasks)
        blanks.prepare()
        await blanks.made.wait()  # its maker has not told yet that it is done
        await blanks.take(Receiver())
        await settled()
        assert blanks.ready == READY_MAX


async def test_one_that_fails_while_nobody_waits_is_tried_again() -> None:
    async with asyncio.TaskGroup() as tasks:
        blanks = Workshop(tasks)
        blanks.failing = RETRIES_MAX
        blanks.prepare()
        await settled()
        assert blanks.ready == READY_MAX


async def test_one_that_fails_often_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcelld.pool.prefork.RETRY_SECONDS_MAX", 0.01)
    async with asyncio.TaskGroup() as tasks:
        blanks = Workshop(tasks)
        blanks.failing = 3 * RETRIES_MAX + 2 * READY_MAX
        blanks.prepare()
        await blanks.made.wait()
        await settled()
        assert blanks.ready == READY_MAX


async def test_what_always_fails_is_seldom_tried_and_is_told_to_who_waits() -> None:
    async with asyncio.TaskGroup() as tasks:
        blanks = Workshop(tasks)
        blanks.failing = 1000
        blanks.prepare()
        await settled()
        tried = blanks.tried
        assert RETRIES_MAX < tried <= RETRIES_MAX + 2 * READY_MAX
        await settled()
        assert (blanks.ready, blanks.tried) == (0, tried)
        with pytest.raises(ZygoteFailed, match="no room"):
            await blanks.take(Receiver())
