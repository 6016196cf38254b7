"""The looks at projects: one at a time for each, and those of one never before those of another."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from toolcelld.files import looks
from toolcelld.files.looks import THREADS, look

pytestmark = pytest.mark.anyio
SECONDS_MAX = 20


async def test_many_looks_at_one_project_leave_room_for_another() -> None:
    held = threading.Event()
    hostile = [asyncio.create_task(look("/hostile", held.wait, SECONDS_MAX)) for _ in range(4 * THREADS)]
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            assert await look("/other", lambda: "seen") == "seen"
    finally:
        held.set()
        await asyncio.gather(*hostile)


async def test_looks_at_one_project_follow_each_other() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.002)
        running -= 1

    await asyncio.gather(*(look("/project", work) for _ in range(20)))
    assert most == 1


async def test_a_look_that_was_given_up_keeps_its_turn() -> None:
    begun, held = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        held.wait(SECONDS_MAX)

    given_up = asyncio.create_task(look("/project", work))
    await asyncio.to_thread(begun.wait, SECONDS_MAX)
    given_up.cancel()
    next_one = asyncio.create_task(look("/project", held.is_set))
    await asyncio.wait([given_up])
    held.set()
    assert await next_one, "it began while the one before was running"


async def test_a_look_raises_what_its_work_raises_and_leaves_the_turn() -> None:
    def work() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await look("/project", work)
    assert await look("/project", lambda: 1) == 1


async def test_no_turn_is_kept_for_ever() -> None:
    await asyncio.gather(*(look(f"/{number % 7}", lambda: 1) for number in range(50)))
    async with asyncio.timeout(SECONDS_MAX):
        while looks._turns:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)  # a thread lets go of its last work a moment after it has answered
            gc.collect()  # a future and its shield hold each other
