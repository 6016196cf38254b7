"""Two Placements of one cluster: one gives out exclusive volumes, and the other one does when that is gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.process.clusters import SECONDS_MAX, Cluster, cluster

from toolcell.client import Kind, Session, Unavailable, connect

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(600)]

NODES = {name: {"volumes": {"s": "s", "x": "x"}} for name in ("n1", "n2", "n3")}
TENANTS = {"alice": {"directories": ["s:", "x:"]}}
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster]]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with cluster(NODES, tenants=TENANTS, exclusive=["x"], others=[NOWHERE]) as first:
        second = first.beside(first.address)
        try:
            second.start()
            yield first, second
        finally:
            second.stop()


async def where(session: Session) -> str:
    outcome = await session.call("t_where")
    assert outcome.kind is Kind.ok, outcome.message
    return outcome.text


async def opened(stack: AsyncExitStack) -> Session:
    """A session of the exclusive volume, as soon as a Placement gives one."""
    with anyio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await stack.enter_async_context(connect("cluster", directory="x:"))
            except Unavailable as error:
                if not any(text in error.message for text in ("most of the nodes", "has not said yet")):
                    raise
                await anyio.sleep(0.2)


async def test_the_other_placement_gives_out_what_is_exclusive_when_the_first_one_is_gone(
    placed: tuple[Cluster, Cluster],
) -> None:
    first, second = placed
    async with AsyncExitStack() as stack:
        first.join("alice", second.address)
        session = await opened(stack)
        place = await where(session)
        second.join("alice")
        with pytest.raises(Unavailable, match="does not have most of the nodes"):
            async with connect("cluster", directory="x:"):
                pass
        async with connect("cluster", directory="s:") as shared:  # it gives what is not exclusive
            assert await where(shared)
        first.stop(signal.SIGKILL)
        first.join("alice", second.address)
        async with connect("cluster", directory="s:") as shared:
            assert await where(shared)
        assert await where(await opened(stack)) == place, "it is in use there"
        assert await where(session) == place
