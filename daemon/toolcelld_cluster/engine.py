"""What an engine gives: the nodes, and what is done with them. A session's calls never pass through one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolcelld_cluster.inventory import Inventory, Node


class NodeState(Protocol):
    """What is known of a node."""

    node: Node
    state: str
    """"ready", "drains" or "lost"."""
    seen_at: float
    """Unix time of its last answer; 0 for none."""


class Engine(Protocol):
    """An engine. Its inventory is what sessions are placed with."""

    name: str
    inventory: Inventory

    def nodes(self) -> Mapping[str, NodeState]:
        """Return what is known of each node."""
        ...

    async def look(self, node: str) -> bool:
        """Return whether the daemon of a node answers now, within a second."""
        ...

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        """Place no sessions on a node, and have those that it has move; or end that."""
        ...
