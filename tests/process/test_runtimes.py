"""A zygote that dies, and the one that is started after it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from toolcelld.runtimes import BACKOFF_SECONDS, Runtime

pytestmark = pytest.mark.anyio

GONE_SECONDS_MAX = 10


async def test_a_zygote_is_started_again_after_a_jittered_wait_that_grows() -> None:
    drawn: list[tuple[float, float]] = []

    def shortest(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    runtime = Runtime(sys.executable, print, jitter=shortest)
    pids: set[int | None] = set()
    try:
        for _ in range(3):
            await runtime.start()
            pids.add(runtime.pid)
            runtime.replace()
            async with asyncio.timeout(GONE_SECONDS_MAX):
                while runtime.pid is not None:  # noqa: ASYNC110  # it has no word for its end
                    await asyncio.sleep(0.001)
    finally:
        await runtime.aclose()
    assert len(pids) == 3
    assert drawn == [(0.0, longest) for longest in BACKOFF_SECONDS[:3]]
