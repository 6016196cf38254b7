"""A daemon that has run out of descriptors refuses what it cannot do, and goes on."""

from __future__ import annotations

import resource

import pytest
from tests.daemons import RunningDaemon
from tests.process.test_calls import ADD

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_a_cell_that_cannot_have_its_descriptors_ends_its_call_and_not_the_daemon(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("add", ADD)
    async with daemon.connect() as session:
        daemon_limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        fresh = daemon.tool(
            "fresh", ADD.replace("def add", "def fresh").replace("@tool", '@tool(isolation="call")')
        )
        assert fresh.exists()
        await session.reload()
        assert (await session.call("add", {"a": 1, "b": 2})).ok
        # Nothing new can be opened below this bound, while all that is open stays.
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (16, daemon_limits[1]))
        starved = [await session.call("fresh", {"a": n, "b": 2}) for n in range(4)]
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, daemon_limits)

        assert {outcome.kind for outcome in starved[2:]} == {"internal"}, starved
        assert "descriptors" in starved[-1].message
        assert (await session.call("fresh", {"a": 1, "b": 2})).ok
