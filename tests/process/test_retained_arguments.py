"""The arguments of a call count for its session until the call has ended, and no longer."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOL = """
from toolcell import tool

@tool(name="size")
def size(text: str) -> int:
    return len(text)
"""


async def test_calls_one_after_the_other_hold_the_arguments_of_one(daemon: RunningDaemon) -> None:
    daemon.tool("all", TOOL)
    daemon.configure('\n[daemon]\nretained_per_session = "4MiB"\n')
    async with daemon.connect() as session:
        for _ in range(6):
            assert (await session.call("size", {"text": "x" * 2**20})).text == str(2**20)
