"""The mappings that a call finds in its process."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOL = """
    from toolcell import tool

    @tool
    def libraries() -> dict:
        found = {}
        for line in open("/proc/self/maps"):
            _, access, _, _, _, *path = line.split(maxsplit=5)
            if path and ".so" in path[0]:
                found.setdefault(path[0].strip(), []).append(access)
        return found
"""


async def test_the_libraries_of_a_worker_have_merged_mappings(daemon: RunningDaemon) -> None:
    daemon.tool("libraries", TOOL)
    async with daemon.connect() as session:
        outcome = await session.call("libraries")
    assert outcome.ok, outcome
    shapes = list(outcome.details.values())
    assert ["r-xp", "r--p", "rw-p"] in shapes
    assert ["r--p", "r-xp", "r--p", "r--p", "rw-p"] not in shapes
