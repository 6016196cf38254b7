"""The processes of a worker as a tree, from this machine's own /proc.

A number of a process is another one's where the daemon has other numbers, as in a container. So a tree is shown of a
worker only that descends from the daemon here, too. What stands there are names, which a tool can choose, and no arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import psutil

from toolcell._units import format_bytes, format_seconds

from .rows import fit

PROCESSES_MAX: Final = 64
"""The first of a tree; a worker has as many by default."""
DEPTH_MAX: Final = 10
"""Beyond it processes are no longer indented."""
NAME_CELLS: Final = 36


def tree_of(worker: int, daemon: int) -> str:
    """Return the tree of a worker's process with its heading; empty where it is not found below its daemon. Blocks."""
    try:
        root = psutil.Process(worker)
        if daemon not in (above.pid for above in root.parents()):
            return ""
        found = {root.pid: root, **{below.pid: below for below in root.children(recursive=True)}}
        below: dict[int, list[int]] = {}
        for pid, process in found.items():
            below.setdefault(process.ppid(), []).append(pid)
    except psutil.Error:
        return ""  # it has ended meanwhile
    order = list(_ordered(root.pid, below))
    rows = [_row(found[pid], depth) for pid, depth in order[:PROCESSES_MAX]]
    more = [f"… and {len(order) - PROCESSES_MAX} more"] if len(order) > PROCESSES_MAX else []
    return "\n".join(["processes", *filter(None, rows), *more])


def _ordered(root: int, below: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Each process and its depth, parents first."""
    stack = [(root, 0)]
    while stack:
        pid, depth = stack.pop()
        yield pid, depth
        stack += [(child, depth + 1) for child in sorted(below.get(pid, ()), reverse=True)]


def _row(process: psutil.Process, depth: int) -> str:
    try:
        with process.oneshot():
            times, memory = process.cpu_times(), process.memory_info().rss
            name = process.name()
    except psutil.Error:
        return ""
    indent = 2 * min(depth, DEPTH_MAX)
    shown = " " * indent + fit(name, NAME_CELLS - indent)
    return f"{process.pid:>10}  {shown}  {format_seconds(times.user + times.system):>8}  {format_bytes(memory):>9}"
