"""What engines have in common: nodes that come and go. Each has a watch, and is in the book until no lease can be in use there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book, Lease
from toolcelld_cluster.inventory import Node
from toolcelld_cluster.keys import Keys
from toolcelld_cluster.watch import NodeWatch

logger = logging.getLogger(__name__)


class Members:
    """The nodes of an engine.

    Args:
        book: The leases.
        keys: Those of each node have to be there before it is added.
    """

    def __init__(self, book: Book, keys: Keys) -> None:
        self.inventory = book.inventory
        self.watches: dict[str, NodeWatch] = {}
        self._book = book
        self._keys = keys
        self._watching: dict[str, asyncio.Task[None]] = {}

    def nodes(self) -> Mapping[str, NodeWatch]:
        """Return the nodes that have joined."""
        return {name: watch for name, watch in self.watches.items() if name in self._book.inventory}

    def add(self, name: str, address: str = "") -> NodeWatch:
        """Return the watch of a node that has no daemon yet."""
        node = Node(name=name, address=address, volumes={})
        watch = self.watches[name] = NodeWatch(node, self._keys, self._book)
        return watch

    def join(self, node: Node, tasks: asyncio.TaskGroup) -> None:
        """Take note of a node that has a daemon, or of what it offers now, and watch it from now on."""
        watch = self.watches[node.name]
        if node != watch.node or node.name not in self._book.inventory:
            volumes = ", ".join(node.volumes) or "no volume"
            logger.info("%s has a daemon on %s, and %s", node.name, node.address, volumes)
            watch.node = node
            self._book.join(clock(), node)
        if node.name not in self._watching:
            self._watching[node.name] = tasks.create_task(watch.run())

    def lose(self, name: str, why: str) -> bool:
        """Take note that the engine does not have a node any more; return whether it is forgotten. Its daemon may go on: sessions
        leave it, and it is forgotten when it does not answer and no lease can be in use there."""
        watch = self.watches[name]
        if name in self._book.inventory:
            if not watch.draining:
                logger.warning("%s: %s", name, why)
                watch.set_draining(draining=True)
            if watch.state != "lost" or not self._book.part(name):
                return False
        self.remove(name)
        return True

    def remove(self, name: str) -> None:
        """Forget the watch of a node."""
        self.watches.pop(name, None)
        self.rest(name)

    def rest(self, name: str) -> None:
        """Watch a node no more, until it joins again."""
        watching = self._watching.pop(name, None)
        if watching is not None:
            watching.cancel()
            if name in self.watches:
                self.watches[name].state = "lost"

    async def reserve(self, lease: Lease) -> str:
        """Return that a lease is kept: what a node has is for sessions alone, and the inventory counts it."""
        return ""

    async def look(self, node: str) -> bool:
        """Return whether a node reports now."""
        watch = self.watches.get(node)
        return watch is not None and await watch.look()

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        """Place nothing on a node, and have its sessions move; or end that. Raises Refused."""
        await self.watches[node].drain(reason, off=off)
