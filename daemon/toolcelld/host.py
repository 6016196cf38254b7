"""What this host can give a cell, found out by building one.

Reading versions and flags would say what ought to work. A distribution may forbid user namespaces to
programs that it does not know, a container may hide /proc, a kernel may lack one right: so a cell of
each kind is built, exactly as one for a tool, and what it reports is what there is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolcelld.blanks import Blanks
from toolcelld.cellspec import CellSpec
from toolcelld.loading import StartFailed
from toolcelld.sources import ToolFile
from toolcelld.worker.policy import CellLimits, Enclosure, Policy
from toolcelld.workers import Worker

__all__ = ["Host", "examine"]

logger = logging.getLogger(__name__)

PROBE: Final = b'from toolcell import tool\n\n@tool\ndef probe() -> None:\n    """Nothing."""\n'
PROBE_SECONDS_MAX: Final = 10.0
"""For loading the probe, which takes some milliseconds."""
ENCLOSURES: Final[tuple[Enclosure, ...]] = ("none", "baseline", "strict")


@dataclass(frozen=True, slots=True)
class Host:
    """For each enclosure why it cannot be had, "" where it can, and the layers that its cells reported."""

    none: str = ""
    baseline: str = ""
    strict: str = ""
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def missing(self, enclosure: Enclosure) -> str:
        """Why it cannot be had; "" where it can."""
        return {"none": self.none, "baseline": self.baseline, "strict": self.strict}[enclosure]


async def examine(blanks_for: Callable[[CellSpec], Blanks], scratch: str) -> Host:
    """Build one cell of each kind; never raises for what a host cannot do."""
    reasons: dict[str, str] = {}
    layers: dict[str, tuple[str, ...]] = {}
    for enclosure in ENCLOSURES:
        file = ToolFile("/probe.py", "probe", "local", "probe", PROBE, f"probe {enclosure}", "/")
        policy = Policy(enclosure, writable=(scratch,))
        spec = CellSpec(file, "/", (), CellLimits(), policy, owner="probe")
        worker = Worker(f"probe-{enclosure}", spec, lambda _: None)
        try:
            await worker.start(blanks_for(spec), load_seconds=PROBE_SECONDS_MAX)
        except StartFailed as failure:
            reasons[enclosure] = failure.message
            logger.info("Cells of the kind %s cannot be had here: %s", enclosure, failure.message)
        else:
            layers[enclosure] = worker.layers
            await worker.end()
    return Host(**reasons, layers=layers)
