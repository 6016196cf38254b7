"""A zygote that dies, and the one that is started after it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from toolcelld.cell.zygote import BACKOFF_SECONDS, STEADY_SECONDS, Zygote

pytestmark = pytest.mark.anyio

GONE_SECONDS_MAX = 10


@pytest.mark.parametrize(
    ("lived_seconds", "longest"),
    [(1.0, BACKOFF_SECONDS[:4]), (STEADY_SECONDS, (BACKOFF_SECONDS[0], *BACKOFF_SECONDS[1:2] * 3))],
)
async def test_a_zygote_is_started_again_after_a_jittered_wait_that_grows_while_none_lives_long(
    lived_seconds: float, longest: tuple[float, ...]
) -> None:
    drawn: list[tuple[float, float]] = []
    now = 0.0

    def shortest(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    runtime = Zygote(sys.executable, print, jitter=shortest, clock=lambda: now)
    pids: set[int | None] = set()
    try:
        for _ in longest:
            await runtime.start()
            pids.add(runtime.pid)
            now += lived_seconds
            runtime.replace()
            async with asyncio.timeout(GONE_SECONDS_MAX):
                while runtime.pid is not None:  # it has no word for its end
                    await asyncio.sleep(0.001)
    finally:
        await runtime.aclose()
    assert len(pids) == len(longest)
    assert drawn == [(0.0, most) for most in longest]
