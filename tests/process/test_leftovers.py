"""A worker in which something of a call goes on is not used for another one."""

from __future__ import annotations

import sys

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Kind

pytestmark = pytest.mark.anyio

TOOLS = """
import asyncio, threading, time
from toolcell import tool

kept = []

@tool
async def nothing() -> None:
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

@tool
async def a_task() -> None:
    kept.append(asyncio.create_task(asyncio.sleep(60)))

@tool
async def a_task_of_another_factory() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    kept.append(asyncio.create_task(asyncio.sleep(60)))

@tool
def a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""


@pytest.mark.parametrize(
    ("left", "count"),
    [
        ("nothing", 0),
        ("a_task", 1),
        pytest.param(
            "a_task_of_another_factory",
            1,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has one factory there"),
        ),
        ("a_thread", 1),
    ],
)
async def test_what_a_call_leaves_is_counted_and_costs_the_worker(
    daemon: RunningDaemon, left: str, count: int
) -> None:
    daemon.tool("leave", TOOLS)
    async with daemon.connect() as session:
        first = await session.call(f"leave_{left}")
        assert (first.kind, first.facts.leftover_threads) == (Kind.ok, count), first.message
        second = await session.call("leave_nothing")
        assert (second.facts.worker_id == first.facts.worker_id) is (count == 0)
