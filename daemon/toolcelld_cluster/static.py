"""The static engine: the nodes of a file. It starts none, and nothing else uses what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from toolcelld_cluster.book import Lease
from toolcelld_cluster.engine import Start
from toolcelld_cluster.inventory import Inventory, Needs
from toolcelld_cluster.watch import NodeWatch


class Static:
    """The engine."""

    name = "static"

    def __init__(self, inventory: Inventory, watches: Iterable[NodeWatch]) -> None:
        self.inventory = inventory
        self._watches = {watch.node.name: watch for watch in watches}

    def nodes(self) -> Mapping[str, NodeWatch]:
        """Return the nodes of the file."""
        return self._watches

    async def run(self) -> None:
        """Watch the nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches.values():
                tasks.create_task(watch.run())

    async def ready(self) -> None:
        """Do nothing: the nodes are those of the file."""

    async def reserve(self, lease: Lease) -> str:
        """Return that it is kept: the inventory counts it."""
        return ""

    def release(self, lease: Lease) -> None:
        """Do nothing, as `reserve`."""

    def want(self, tenant: str, needs: Needs) -> Start:
        """Do nothing: no node is started."""
        return Start()

    async def look(self, node: str) -> bool:
        """Return whether a node reports now."""
        return await self._watches[node].look()

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        """Place nothing there, and have its sessions move; or end that. Raises Refused."""
        await self._watches[node].drain(reason, off=off)
