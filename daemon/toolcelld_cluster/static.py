"""The static engine: the nodes of a file. It starts none, and nothing else uses what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from toolcelld_cluster.book import Book, Lease
from toolcelld_cluster.engine import Start
from toolcelld_cluster.inventory import Needs
from toolcelld_cluster.keys import Keys
from toolcelld_cluster.members import Members
from toolcelld_cluster.watch import NodeWatch


class Static(Members):
    """The engine.

    Args:
        book: The leases, with the nodes of the file.
        keys: Those of each node.
        draining: The nodes on which nothing is placed.
    """

    name = "static"

    def __init__(self, book: Book, keys: Keys, draining: Collection[str]) -> None:
        super().__init__(book, keys)
        for node in self.inventory:
            watch = self.watches[node.name] = NodeWatch(node, keys, book)
            watch.draining = node.name in draining

    async def run(self) -> None:
        """Watch the nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self.watches.values():
                tasks.create_task(watch.run())

    async def ready(self) -> None:
        """Do nothing: the nodes are those of the file."""

    def release(self, lease: Lease) -> None:
        """Do nothing, as nothing was kept."""

    def want(self, tenant: str, needs: Needs) -> Start:
        """Do nothing: no node is started."""
        return Start()
