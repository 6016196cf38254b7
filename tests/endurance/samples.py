"""What a daemon, its processes and its directories hold at a moment, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.daemons import RunningDaemon, open_descriptors, threads

from toolcelld.worker.keeper import children, descendants

__all__ = ["FIGURES", "Sample", "take"]

PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
SHARED: Final = ("Pss_Anon:", "Pss_Shmem:")

FIGURES: Final = {
    "daemon, MiB": 0.1,
    "zygote, MiB": 0.1,
    "all processes, MiB": 0.2,
    "client, MiB": 0.1,
    "daemon's descriptors": 0.5,
    "all descriptors": 0.5,
    "daemon's threads": 0.5,
    "all threads": 0.5,
    "processes": 0.5,
    "files": 0.5,
    "disk, MiB": 2.0,
}
"""Each figure of a sample, and by how much it may grow in 10,000 calls: 0.1 MiB are ten bytes for each.

The records are cut to their bound once a minute, so the disk rises and falls by four MiB, and a line through two of these
teeth may rise by one; without a bound it rises by six and a half.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures after so many calls.

    The memory of one process is what it has resident, of the client when it has freed what it can; that of all together is without mapped files,
    which other programs share, and counts shared pages once, where the kernel lets the test read it. Files and disk are the state and runtime directories without the stored outputs, which
    `outputs_bytes` has.
    """

    calls: int
    figures: dict[str, float]
    outputs_bytes: int


def take(daemon: RunningDaemon, calls: int) -> Sample:
    """Count; what ends meanwhile is counted in part."""
    _free()
    pids = [daemon.pid, *descendants(daemon.pid)]
    held = [(_size(path), path) for path in _files(daemon)]
    kept = [size for size, path in held if path.parent.name != "outputs"]
    counted = [(_threads(pid), _descriptors(pid), _shared_bytes(pid)) for pid in pids]
    all_threads, all_descriptors, all_bytes = map(sum, zip(*counted, strict=True))
    figures = (
        _resident_bytes(daemon.pid) / 2**20,
        sum(map(_resident_bytes, children(daemon.pid))) / 2**20,
        all_bytes / 2**20,
        _resident_bytes(os.getpid()) / 2**20,
        open_descriptors(daemon.pid),
        all_descriptors,
        threads(daemon.pid),
        all_threads,
        len(pids),
        len(kept),
        sum(kept) / 2**20,
    )
    return Sample(calls, dict(zip(FIGURES, figures, strict=True)), sum(size for size, _ in held) - sum(kept))


def _free() -> None:
    """Free what only a collection frees, and give back the pages that malloc keeps: both rise and fall by megabytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _threads(pid: int) -> int:
    with suppress(OSError):
        return threads(pid)
    return 0


def _descriptors(pid: int) -> int:
    with suppress(OSError):
        return open_descriptors(pid)
    return 0


def _resident_bytes(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES
    return 0


def _shared_bytes(pid: int) -> int:
    """Its proportional share (PSS) without mapped files; what is resident, where that is only for its tracers."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(SHARED))
    except PermissionError:
        return _resident_bytes(pid)
    except OSError:
        return 0


def _files(daemon: RunningDaemon) -> Iterator[Path]:
    for place in (Path(daemon.socket).parent, daemon.state):
        yield from place.rglob("*")


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0
