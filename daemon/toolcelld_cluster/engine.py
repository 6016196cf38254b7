"""What an engine gives: the nodes, and what is done with them. A session's calls never pass through one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from toolcelld_cluster.book import Lease
from toolcelld_cluster.inventory import Inventory, Needs, Node


class NodeState(Protocol):
    """What is known of a node."""

    node: Node
    state: str
    """"ready", "drains" or "lost"."""
    seen_at: float
    """Unix time of its last answer; 0 for none."""

    @property
    def silent_seconds(self) -> float:
        """For how long it has been lost; 0 for one that answers."""
        ...


class Start(NamedTuple):
    """What an engine does for a session that no node can take."""

    said: str = ""
    """For people: what is done, or why nothing is."""
    begun: bool = False
    """Whether a node is being started that the session fits on."""


class Engine(Protocol):
    """An engine. Its inventory is what sessions are placed with."""

    name: str
    inventory: Inventory

    def nodes(self) -> Mapping[str, NodeState]:
        """Return what is known of each node."""
        ...

    async def run(self) -> None:
        """Watch the nodes, until cancelled."""
        ...

    async def ready(self) -> None:
        """Wait until it has looked at its nodes, or does not know any."""
        ...

    async def reserve(self, lease: Lease) -> str:
        """Have the engine keep what a new lease takes of its node.

        Returns:
            Why it cannot, as what the node does; empty if it is kept.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give back what was kept for a lease that is over. Waits for nothing."""
        ...

    def want(self, tenant: str, needs: Needs) -> Start:
        """Take note that a session of a tenant waits for what no node has now, so that a node may be started. Waits for nothing."""
        ...

    async def look(self, node: str) -> bool:
        """Return whether the daemon of a node answers now, within a second."""
        ...

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        """Place no sessions on a node, and have those that it has move; or end that."""
        ...
