"""Who makes a request: a program of this machine, an operator of it, or with a ticket a program of another machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lease of a session that Placement has placed here, as its ticket says."""

    node: str  # this machine
    session: str  # the id that the session has
    tenant: str
    certificate: str
    fence: int
    volume: str
    root: str
    begin: str  # where the session begins, below the directory of the ticket
    exclusive: bool  # whether the volume belongs to one node at a time
    opens: float  # Unix time until which the session may be opened
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller, and what it is held to."""

    operator: bool = False
    owner: str = ""  # whose its sessions are, and nobody else's; empty for all programs of this machine
    directory: str = ""  # its sessions work there or below; empty for anywhere
    lease_seconds: float = 0.0  # how long a session goes on without a word of it; 0 for no lease
    expires: float = math.inf  # Unix time at which its sessions end
    sessions_max: int = 0  # 0 for no bound of its own
    lease: Lease | None = None  # of Placement

    @property
    def tenant(self) -> str:
        """The tenant of the cluster that Placement has placed it for; empty for any other caller."""
        return self.lease.tenant if self.lease is not None else ""


AGENT: Final = Caller()
"""Any program that has shown the token of agents."""
OPERATOR: Final = Caller(operator=True)
"""One that has shown the token of operators."""
