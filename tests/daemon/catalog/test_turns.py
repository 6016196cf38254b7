"""Files that hang keep those of other directories waiting for one slot's time, and lose nothing by it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from toolcelld.catalog.describing.turns import SLOW_MAX, Turns

pytestmark = pytest.mark.anyio

SHORT = 0.01
LONG = 30.0  # for waits that another event ends; reaching it fails the test


class Works:
    """What is run: it notes what begins and what is stopped, and hangs until it may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.may_end = asyncio.Event()

    def hanging(self, name: str) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            self.begun.append(name)
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.stopped.append(name)
                raise
            return name

        return work

    def quick(self, name: str) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            self.begun.append(name)
            await asyncio.sleep(0)
            return name

        return work


@pytest.fixture
def works() -> Works:
    return Works()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(SHORT / 2)


async def test_a_directory_with_nothing_in_work_passes_those_whose_files_hang(works: Works) -> None:
    turns = Turns(2, SHORT)
    async with asyncio.TaskGroup() as group:
        hanging = [
            group.create_task(turns.run(f"d{number % 4}", works.hanging(f"hangs {number}")))
            for number in range(30)
        ]
        await until(lambda: len(works.begun) == 2 * (1 + SLOW_MAX))
        await asyncio.sleep(5 * SHORT)
        assert not works.stopped, "no other directory waits"
        async with asyncio.timeout(LONG):
            assert [await turns.run("other", works.quick(f"quick {n}")) for n in range(10)][-1] == "quick 9"
        assert works.stopped
        assert set(works.stopped) <= set(works.begun)
        works.may_end.set()
        assert [await task for task in hanging] == [f"hangs {number}" for number in range(30)]
    assert_free(turns, 2)


async def test_the_directory_with_the_least_in_work_is_next(works: Works) -> None:
    turns = Turns(2, LONG)
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(turns.run("many", works.hanging(f"many {number}")))
        await until(lambda: len(works.begun) == 2)
        group.create_task(turns.run("one", works.hanging("one")))
        await asyncio.sleep(0)
        works.may_end.set()
    assert works.begun[:3] == ["many 0", "many 1", "one"]
    assert_free(turns, 2)


async def test_what_was_stopped_begins_again_and_is_not_stopped_twice(works: Works) -> None:
    turns = Turns(1, SHORT)
    async with asyncio.TaskGroup() as group:
        for number in range(1 + SLOW_MAX):
            group.create_task(turns.run("hangs", works.hanging(f"{number}")))
        await until(lambda: len(works.begun) == 1 + SLOW_MAX)
        await asyncio.sleep(2 * SHORT)
        for number in range(20):
            async with asyncio.timeout(LONG):
                await turns.run(f"other {number}", works.quick("quick"))
        assert works.stopped == [f"{SLOW_MAX}"]
        works.may_end.set()
    assert works.begun.count(f"{SLOW_MAX}") == 2
    assert_free(turns, 1)


async def test_a_failure_gives_its_place_back(works: Works) -> None:
    turns = Turns(1, SHORT)

    async def fails() -> str:
        raise ValueError("no")

    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            await turns.run("fails", fails)
    assert_free(turns, 1)


@pytest.mark.sampled(one_in=5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
async def test_no_place_is_lost_whatever_is_cancelled_and_when(works: Works, seed: int) -> None:
    chance = random.Random(seed)
    turns = Turns(2, SHORT)
    tasks: list[asyncio.Task[str]] = []
    for number in range(60):
        work = chance.choice((works.hanging, works.quick))(f"{number}")
        tasks.append(asyncio.create_task(turns.run(f"d{chance.randrange(12)}", work)))
        for _ in range(chance.randrange(3)):
            chance.choice(tasks).cancel()
        await asyncio.sleep(chance.choice((0, 0, SHORT / 2)))
    works.may_end.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) or each == f"{n}" for n, each in enumerate(ended))
    assert_free(turns, 2)


def assert_free(turns: Turns, slots: int) -> None:
    """Nothing is in work and nothing waits."""
    state = vars(turns)
    assert (state["_slots"].free, state["_slow"].free) == (slots, slots * SLOW_MAX)
    assert not state["_slots"].waiting
    assert not state["_slow"].waiting
    assert not state["_load"]
    assert not state["_overdue"]
    assert state["_stopping"] == 0
