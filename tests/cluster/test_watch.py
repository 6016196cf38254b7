"""What Placement knows of a node that does not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from toolcell_proto.v1 import placement_pb2 as pb
from toolcelld.sessions.lease import clock
from toolcelld_cluster import watch
from toolcelld_cluster.book import Book
from toolcelld_cluster.inventory import Inventory, Node
from toolcelld_cluster.keys import keys
from toolcelld_cluster.rules import PlacementRules
from toolcelld_cluster.watch import NodeWatch

pytestmark = pytest.mark.anyio

HOUR_SECONDS = 3600.0


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NodeWatch:
    """A node that has just been lost, for which a look waits an hour."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", HOUR_SECONDS)
    inventory = Inventory()
    node = Node(name="n1", address="n1:1", volumes={"a": "/a"})
    inventory.put(node)
    found = keys(str(tmp_path), "localhost", [node.name])
    return NodeWatch(node, found, Book(PlacementRules(tenants={}), inventory, 0.0, 1))


async def test_a_node_that_has_been_lost_for_as_long_as_a_look_is_not_waited_for(watched: NodeWatch) -> None:
    watched._lost_at -= HOUR_SECONDS
    with anyio.fail_after(30):
        assert not await watched.look()


async def test_a_node_that_was_lost_just_now_is_looked_at_until_it_reports(watched: NodeWatch) -> None:
    with anyio.fail_after(30):
        looking = asyncio.create_task(watched.look())
        await watched._hurry.wait()
        watched._take(clock(), pb.ReportResponse())
        assert await looking
