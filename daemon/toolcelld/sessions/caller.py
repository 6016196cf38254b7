"""Who makes a request: a program of this machine, an operator of it, or with a ticket a program of another machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller, and what it is held to."""

    operator: bool = False
    owner: str = ""  # whose its sessions are, and nobody else's; empty for all programs of this machine
    directory: str = ""  # its sessions work there or below; empty for anywhere
    lease_seconds: float = 0.0  # how long a session goes on without a word of it; 0 for no lease
    expires: float = math.inf  # Unix time at which its sessions end
    sessions_max: int = 0  # 0 for no bound of its own


AGENT: Final = Caller()
"""Any program that has shown the token of agents."""
OPERATOR: Final = Caller(operator=True)
"""One that has shown the token of operators."""
