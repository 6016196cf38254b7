"""Control groups: one for each cell, in the part of the hierarchy that was handed to the daemon.

    BASE                  the group that was delegated to us, by systemd's Delegate=yes for one
      supervisor          the daemon and its zygotes
      cell-PID-N          one cell, keeper included; PID is the daemon's

With a group the kernel holds what all processes of a cell use together, ends all of them with one
word, and says when the last one is gone. Only version 2 can do that, and only where somebody gave
us a group: in one that is merely writable the service manager does as it likes, so there we say no
and why. Each controller is wanted for itself, as one that is missing fails a write of several.
Killing works without any.

The limit on processes is set a little higher than asked for. Forks beyond it fail, and most
programs tell nobody; so the meter has to see the limit crossed, and the wall behind it only keeps a
bomb from getting far between two looks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from dataclasses import dataclass
from typing import Final

from toolcelld.sandbox.policy import PROCESSES_MARGIN, CellLimits

__all__ = ["Cgroup", "CgroupTree", "CgroupUsage"]

CONTROLLERS: Final = ("memory", "pids", "cpu")
SUPERVISOR: Final = "supervisor"
SUPERVISOR_WEIGHT: Final = 1000
"""Ten times a cell's share of the processors, so that cells full of spinning processes do not keep the daemon waiting."""
UNMOUNTED: Final = "there is no control group hierarchy of version 2"
DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""What systemd marks a delegated group with; only root sees the second."""

_CELL = re.compile(r"cell-(\d+)-\d+")


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """What the kernel wrote down about a cell; 0 where it keeps no such account."""

    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    out_of_memory_kills: int = 0
    """Processes that the kernel ended because the cell itself passed its limit."""


class Cgroup:
    """The control group of one cell."""

    def __init__(self, path: str, controllers: frozenset[str]) -> None:
        self.path = path
        self._controllers = controllers

    def join(self, pid: int) -> None:
        """Have a process in it, and all that it forks from now on. Takes some ms: the kernel waits for a quiet moment."""
        _write(f"{self.path}/cgroup.procs", str(pid))

    def limit(self, limits: CellLimits) -> bool:
        """Hold what is in it under those limits, as far as there are controllers; says whether its memory is held."""
        holds = False
        if "memory" in self._controllers and limits.memory_bytes is not None:
            # The whole cell or nobody: a tool that goes on without some of its processes is in no known state.
            _write(f"{self.path}/memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # kernels without swap
                _write(f"{self.path}/memory.swap.max", "0")
            _write(f"{self.path}/memory.max", str(limits.memory_bytes))
            holds = True
        if "pids" in self._controllers and limits.processes is not None:
            _write(f"{self.path}/pids.max", str(limits.processes + PROCESSES_MARGIN))
        return holds

    def members(self) -> list[int]:
        """The processes in it."""
        with contextlib.suppress(OSError):
            return [int(pid) for pid in _read(f"{self.path}/cgroup.procs").split()]
        return []

    def kill(self) -> bool:
        """End everybody in it at once, also who is being forked; says whether the kernel can (since 5.14)."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def usage(self) -> CgroupUsage:
        """What was used by all who have ever been in it."""
        cpu = _table(f"{self.path}/cpu.stat").get("usage_usec", 0) / 1e6
        if "memory" not in self._controllers:
            return CgroupUsage(cpu)
        peak = 0
        with contextlib.suppress(OSError, ValueError):  # since 5.19
            peak = int(_read(f"{self.path}/memory.peak"))
        events = _table(f"{self.path}/memory.events")
        # Who was ended for want of memory elsewhere, of the whole machine for one, passed no limit of his own.
        return CgroupUsage(cpu, peak, events.get("oom_kill", 0) if events.get("oom", 0) else 0)

    def remove(self) -> bool:
        """Remove it; a no is the kernel's word that somebody is in it."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def __repr__(self) -> str:
        return f"<Group {os.path.basename(self.path)} of {len(self.members())}>"


class CgroupTree:
    """The groups of this daemon's cells, or the reason why there are none."""

    def __init__(self, base: str = "", controllers: frozenset[str] = frozenset(), reason: str = "") -> None:
        self.base = base
        self.controllers = controllers
        self.reason = reason
        """Why there are none; empty where there are."""
        self._numbers = itertools.count(1)
        self._unremoved: list[Cgroup] = []  # not empty when they were to be removed

    @property
    def available(self) -> str:
        """One line for people."""
        if self.reason:
            return f"no: {self.reason}"
        return (
            f"yes: {self.base}, which holds {', '.join(sorted(self.controllers)) or 'nothing and can kill'}"
        )

    @classmethod
    def claim(cls) -> CgroupTree:
        """Take the group that this process was given: move into its leaf, and sweep what a dead daemon left."""
        mount = _mount()
        if mount is None:
            return cls(reason=UNMOUNTED)
        own = _own_path()
        base = os.path.dirname(own) if os.path.basename(own) == SUPERVISOR else own
        path = mount + base.rstrip("/")
        if not _is_delegated(path):
            return cls(
                reason=f"the control group {base} is not delegated to the daemon; "
                "run it as the service that comes with it, or say Delegate=yes in your own unit"
            )
        others = set(map(int, _read(f"{path}/cgroup.procs").split())) - {os.getpid()}
        if others:
            return cls(
                reason=f"the control group {base} also holds process {min(others)}, which is not the daemon's"
            )
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{path}/{SUPERVISOR}")
            _write(f"{path}/{SUPERVISOR}/cgroup.procs", str(os.getpid()))
        except OSError as error:
            return cls(reason=f"the control group {base} cannot be used: {error.strerror}")
        cgroups = cls(path, frozenset(name for name in CONTROLLERS if _enable(path, name)))
        with contextlib.suppress(OSError):  # no such file without the controller
            _write(f"{path}/{SUPERVISOR}/cpu.weight", str(SUPERVISOR_WEIGHT))
        cgroups._sweep()
        return cgroups

    def make(self) -> Cgroup | None:
        """A group for one cell; None where there are none."""
        self._unremoved = [cgroup for cgroup in self._unremoved if not cgroup.remove()]
        if not self.base:
            return None
        path = f"{self.base}/cell-{os.getpid()}-{next(self._numbers)}"
        try:
            os.mkdir(path)
        except OSError:  # as many as the one who delegated allows: the meter holds the cell alone
            return None
        return Cgroup(path, self.controllers)

    def remove(self, cgroup: Cgroup) -> bool:
        """Remove a cell's group; one that is not empty is tried again with the next one made."""
        if cgroup.remove():
            return True
        self._unremoved.append(cgroup)
        return False

    def close(self) -> None:
        """Remove what can be removed."""
        self._unremoved = [cgroup for cgroup in self._unremoved if not cgroup.remove()]

    def _sweep(self) -> None:
        """End and remove the cells of daemons that are gone."""
        for entry in os.listdir(self.base):
            match = _CELL.fullmatch(entry)
            if match is None or self._is_daemon(int(match[1])):
                continue
            cgroup = Cgroup(f"{self.base}/{entry}", self.controllers)
            cgroup.kill()
            if not cgroup.remove():
                self._unremoved.append(cgroup)  # it dies, and does not take long

    def _is_daemon(self, pid: int) -> bool:
        """Whether that is another living daemon, which shares this base with us."""
        return pid != os.getpid() and str(pid) in _read(f"{self.base}/{SUPERVISOR}/cgroup.procs").split()


def _mount() -> str | None:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if kind == "cgroup2":
                return place
    return None


def _own_path() -> str:
    """Of this process in the hierarchy of version 2; "/" where that is the root, or where it is hidden."""
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    return "/"


def _is_delegated(path: str) -> bool:
    """Whether somebody made this group ours: marked it, or, unless we are root, gave it to our user."""
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    try:
        return os.geteuid() != 0 and all(
            os.stat(place).st_uid == os.geteuid() for place in (path, f"{path}/cgroup.procs")
        )
    except OSError:
        return False


def _enable(path: str, controller: str) -> bool:
    """Have a controller in the groups below."""
    try:
        _write(f"{path}/cgroup.subtree_control", f"+{controller}")
    except OSError:
        return False
    return True


def _table(path: str) -> dict[str, int]:
    """A file of lines of a name and a number."""
    with contextlib.suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in _read(path).splitlines())}
    return {}


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """One write, because the kernel takes each as one order."""
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)
