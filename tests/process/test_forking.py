"""Workers share the memory of a zygote, and neither its random numbers nor the state of its threads."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

DRAW = """
    import multiprocessing
    import random
    import threading

    from toolcell import tool

    def draw():
        assert threading.current_thread() is threading.main_thread() and threading.active_count() == 1
        return random.random()

    def draw_into(queue):
        queue.send(draw())

    @tool(isolation="call")
    def drawn() -> list[float]:
        numbers = [draw()]
        for _ in range(2):
            receiving, sending = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(target=draw_into, args=(sending,))
            process.start()
            numbers.append(receiving.recv())
            process.join()
        return numbers
"""


async def test_each_worker_and_each_process_that_a_tool_forks_draws_its_own_random_numbers(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("drawn", DRAW)
    async with daemon.connect() as session:
        outcomes = [await session.call("drawn", {}) for _ in range(2)]
    numbers = [number for outcome in outcomes for number in outcome.details]
    assert len(numbers) == len(set(numbers)) == 6, numbers
