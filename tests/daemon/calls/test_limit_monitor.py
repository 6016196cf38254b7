"""The meter's one timer: wound by what begins, and run out when there is nothing to look at."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from toolcelld.calls.call import Call
from toolcelld.calls.limit_monitor import LimitMonitor

pytestmark = pytest.mark.anyio


class Looks:
    """Has no calls, and counts how often it is asked for them."""

    def __init__(self) -> None:
        self.count = 0
        self.came = asyncio.Event()

    def __call__(self) -> list[Call]:
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

    def calls() -> list[Call]:
        order.append("look")
        if len(order) == 1:
            time.sleep(0.2)  # others have the processors; ten times that are two seconds
            loop.call_later(1.0, order.append, "a second later")
        else:
            over.set()
        return cast("list[Call]", [SimpleNamespace(run=None)])

    async with asyncio.TaskGroup() as tasks:
        meter = LimitMonitor(calls, tasks)
        meter.wake()
        await asyncio.wait_for(over.wait(), 60)
        meter.close()
    assert order[:2] == ["look", "look"]  # in the order of their times, however late both are
