"""What this host can give a cell: a value, found out by `probe`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcelld.sandbox.policy import Enclosure


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """For each enclosure why it cannot be had, "" where it can, and the layers that its cells reported."""

    none: str = ""
    baseline: str = ""
    strict: str = ""
    guard: str = ""
    """Why protected names cannot be refused when they are made, "" where they can."""
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def missing(self, enclosure: Enclosure) -> str:
        """Why it cannot be had; "" where it can."""
        return {"none": self.none, "baseline": self.baseline, "strict": self.strict}[enclosure]
