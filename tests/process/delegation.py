"""The control group that a service manager handed to the tests, if one did: then each daemon has one below it.

In a user service with Delegate=yes (`make test-systemd`) the tests stand in for the
service manager, which gives every daemon a group of its own. Those who start that service say so
in GUEST_DELEGATED, as a user's manager marks nothing: every group below it is writable for the
user, also the one of a desktop's terminal, and that must be left alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from pathlib import Path
from typing import Final

from toolcelld.cell.cgroup import Cgroup

__all__ = ["base", "cells", "hierarchy", "inside", "make", "remove"]

LEAF: Final = "tests"
EMPTY_SECONDS_MAX: Final = 30.0

_numbers = itertools.count(1)


def hierarchy() -> Path | None:
    """Where the groups of version 2 are."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


@functools.cache
def base() -> Path | None:
    """The group that was handed to the tests, which then live in a leaf of it, with all its controllers passed down."""
    if not os.environ.get("GUEST_DELEGATED"):
        return None
    root = hierarchy()
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    assert root is not None
    assert own, "GUEST_DELEGATED is set where there are no groups of version 2"
    place = root / own[0].strip("/")
    if place.name == LEAF:
        place = place.parent
    leaf = place / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (place / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(pid)
    for controller in (place / "cgroup.controllers").read_text().split():
        (place / "cgroup.subtree_control").write_text(f"+{controller}")
    return place


def make(below: Path) -> Path:
    """A group for one daemon, marked as handed over."""
    path = below / f"daemon-{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    os.setxattr(path, "user.delegate", b"1")
    return path


def inside(group: Path) -> list[str]:
    """What a program is started through to begin its life in a group."""
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]


def cells(group: Path) -> list[Path]:
    """The cells' groups in a daemon's."""
    return sorted(group.glob("cell-*"))


def remove(group: Path) -> list[str]:
    """Remove a daemon's group once the daemon is gone; returns the cells that were left in it."""
    left = cells(group)
    for path in (*left, group / "supervisor", group):
        if path.exists():
            Cgroup(str(path), frozenset()).kill()
            _remove_empty(path)
    return [str(path) for path in left]


def _remove_empty(path: Path) -> None:
    deadline = time.monotonic() + EMPTY_SECONDS_MAX
    while not Cgroup(str(path), frozenset()).remove():
        assert time.monotonic() < deadline, f"{path} does not become empty"
        time.sleep(0.01)  # the kernel has no word for "removable"
