"""Tests which kinds of cells this host supports, by building one of each.

Kernel versions and flags are not sufficient: a distribution may forbid user namespaces to unknown programs, a
container may hide /proc, a kernel may lack one Landlock right. A cell that is built as for a tool reports its layers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Final

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.host import HostCapabilities
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.sandbox.policy import CellLimits, Enclosure, SandboxPolicy

logger = logging.getLogger(__name__)

PROBE: Final = b'from toolcell import tool\n\n@tool\ndef probe() -> None:\n    """Nothing."""\n'

GUARD_PROBE: Final = """
import os

os.mkdir({there!r})
os.rmdir({there!r})
try:
    os.mkdir({protected!r})
except PermissionError:
    pass
else:
    raise RuntimeError("the guard lets a protected name be made")
"""
PROBE_SECONDS_MAX: Final = 10.0
"""For loading the probe, which takes milliseconds."""
PROCESSES: Final = 64
"""So that the cells show whether their number can be bounded."""


ENCLOSURES: Final[tuple[Enclosure, ...]] = ("none", "baseline", "strict")


async def probe_host(prefork_for: Callable[[CellSpec], PreforkedCells], tmpdir: str) -> HostCapabilities:
    """Build one cell of each kind, and return what the host supports. An unsupported kind is no error.

    Args:
        prefork_for: Returns the preforked cells for a cell's specification.
        tmpdir: The directory of the cells' temporary directories.
    """
    reasons: dict[str, str] = {}
    layers: dict[str, tuple[str, ...]] = {}
    for enclosure in ENCLOSURES:
        file = ToolFile("/probe.py", "probe", "local", "probe", PROBE, f"probe {enclosure}", "/")
        policy = SandboxPolicy(enclosure, writable=(tmpdir,))
        spec = CellSpec(file, "/", (), CellLimits(processes=PROCESSES), policy, owner="probe")
        worker = Worker(f"probe-{enclosure}", spec, lambda _: None)
        try:
            await worker.start(prefork_for(spec), load_seconds=PROBE_SECONDS_MAX)
        except StartFailed as failure:
            reasons[enclosure] = failure.message
            logger.info("Cells of the kind %s are not available on this host: %s", enclosure, failure.message)
        else:
            layers[enclosure] = worker.layers
            await worker.end()
    guard = reasons.get("baseline") or await _probe_guard(prefork_for, tmpdir)
    return HostCapabilities(**reasons, guard=guard, layers=layers)


async def _probe_guard(prefork_for: Callable[[CellSpec], PreforkedCells], tmpdir: str) -> str:
    """Return why protected names cannot be refused when they are made; empty if they can."""
    directory = tempfile.mkdtemp(prefix="probe-", dir=await asyncio.to_thread(os.path.realpath, tmpdir))
    try:
        text = GUARD_PROBE.format(there=f"{directory}/there", protected=f"{directory}/.git")
        content = text.encode() + PROBE
        file = ToolFile("/probe.py", "probe", "local", "probe", content, "probe guard", "/")
        policy = SandboxPolicy("baseline", writable=(directory,), guarded=directory)
        spec = CellSpec(file, "/", (), CellLimits(), policy, owner="probe")
        worker = Worker("probe-guard", spec, lambda _: None)
        try:
            await worker.start(prefork_for(spec), load_seconds=PROBE_SECONDS_MAX)
        except StartFailed as failure:
            logger.info("Protected names cannot be refused on this host: %s", failure.message)
            return failure.message
        await worker.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return ""
