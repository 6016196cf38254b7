"""A lease on a clock of the test's own."""

from __future__ import annotations

import asyncio

import pytest

from toolcelld.sessions import lease as leases
from toolcelld.sessions.lease import Lease

pytestmark = pytest.mark.anyio


class Clock:
    """The clock of the machine, which a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = asyncio.Event()

    def __call__(self) -> float:
        self.looks.set()
        return self.now


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases, "clock", clock)
    return clock


async def test_a_word_in_time_renews_it_and_a_late_one_ends_it(clock: Clock) -> None:
    ends: list[float] = []
    lease = Lease(3600, float("inf"), lambda: ends.append(clock.now))
    for _ in range(5):
        clock.now += 3599
        lease.renew()
    assert ends == []
    clock.now += 3600
    lease.renew()  # no timer has fired: the loop was stopped for as long
    lease.renew()
    assert ends == [clock.now]


async def test_it_ends_by_itself(clock: Clock) -> None:
    over = asyncio.Event()
    lease = Lease(0.03, float("inf"), over.set)
    clock.now += 1
    async with asyncio.timeout(30):
        await over.wait()
    lease.end()


async def test_one_that_is_held_ends_only_if_the_machine_stood_still(clock: Clock) -> None:
    over = asyncio.Event()
    lease = Lease(0.3, float("inf"), over.set)
    lease.hold()
    for _ in range(10):
        clock.now += 0.2
        clock.looks.clear()
        async with asyncio.timeout(30):
            await clock.looks.wait()  # it has looked, and renewed itself
    assert not over.is_set()
    clock.now += 0.3
    async with asyncio.timeout(30):
        await over.wait()


async def test_it_does_not_outlast_its_ticket(clock: Clock) -> None:
    over = asyncio.Event()
    lease = Lease(3600, 1.0, over.set)  # Unix time
    lease.renew()
    assert over.is_set()


async def test_nobody_is_told_of_the_end_of_one_that_was_forgotten(clock: Clock) -> None:
    ends: list[int] = []
    lease = Lease(3600, float("inf"), lambda: ends.append(1))
    lease.end()
    clock.now += 7200
    lease.renew()
    assert ends == []
