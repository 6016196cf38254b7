"""What Placement's configuration says about leases: what each tenant may have, and how long a lease and a ticket last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CLOCKS_SECONDS: Final = 5.0
"""By which the clocks of nodes may differ from that of Placement. A ticket that is over by the slowest is over by all."""
STOP_SECONDS: Final = 1.0
"""From the end of a lease to the end of its last process: a quarter of a second for tools to obey, and the kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """What a tenant may have."""

    directories: tuple[
        tuple[str, str], ...
    ]  # volumes, and the path of each that it may use or below; empty for all
    sessions_max: int = 50
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    operator: bool = False
    # The digests of code that its sessions may have with all that it asks for.
    trust: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """What Placement's configuration says about leases."""

    tenants: Mapping[str, Tenant]
    exclusive: frozenset[str] = frozenset()
    lease_seconds: float = 10.0
    ticket_seconds: float = 300.0
    elects: str = ""  # which of several Placements this is; empty for the only one
    trust: str = ""  # the version of what tenants trust; empty for nothing

    @property
    def over_seconds(self) -> float:
        """From the last word of a client to the end of what it has left on a node."""
        return self.lease_seconds + STOP_SECONDS
