"""Control groups (cgroups): one for each cell, in the part of the hierarchy that is delegated to the daemon.

    BASE                  the cgroup that is delegated to us, for example by systemd's Delegate=yes
      supervisor          the daemon and its zygotes
      cell-PID-N          one cell with its keeper; PID is the daemon's

With a cgroup the kernel limits what all processes of a cell use together, kills all of them with one write, and
reports when the last one has exited. This needs version 2 of the hierarchy, and a delegated cgroup: the service
manager may reorganise one that is only writable, so the daemon does not use it and says why. Controllers are enabled
one by one, because a write of several fails if one is missing. Killing needs no controller.

The limit on processes is set a little higher than configured. Forks beyond it fail, and most programs do not report
that; so the limit monitor has to measure that the limit is passed, and the kernel's limit only stops a fork bomb
between two measurements.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from dataclasses import dataclass
from typing import Final

from toolcelld.sandbox.policy import PROCESSES_MARGIN, CellLimits

CONTROLLERS: Final = ("memory", "pids", "cpu")
SUPERVISOR: Final = "supervisor"
SUPERVISOR_WEIGHT: Final = 1000
"""Ten times a cell's share of the processors, so that busy cells do not slow down the daemon."""
UNMOUNTED: Final = "there is no control group hierarchy of version 2"
DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""The attributes with which systemd marks a delegated cgroup; only root can read the second."""

_CELL = re.compile(r"cell-(\d+)-\d+")


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """The kernel's accounts of a cell; 0 where it keeps none."""

    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    out_of_memory_kills: int = 0
    """Processes that the kernel killed because the cell itself passed its limit."""


class Cgroup:
    """The control group of one cell."""

    def __init__(self, path: str, controllers: frozenset[str]) -> None:
        self.path = path
        self._controllers = controllers

    def join(self, pid: int) -> None:
        """Move a process into it, with all that it forks from now on. Blocks for some ms, for the kernel's locks."""
        _write(f"{self.path}/cgroup.procs", str(pid))

    def limit(self, limits: CellLimits) -> bool:
        """Set the limits for which there is a controller.

        Args:
            limits: The limits of the cell; None is no limit.

        Returns:
            Whether the memory is limited.

        Raises:
            OSError: The kernel refused a limit.
        """
        holds = False
        if "memory" in self._controllers and limits.memory_bytes is not None:
            # Kill the whole cell, as a tool that loses some of its processes is in an unknown state.
            _write(f"{self.path}/memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # kernels without swap
                _write(f"{self.path}/memory.swap.max", "0")
            _write(f"{self.path}/memory.max", str(limits.memory_bytes))
            holds = True
        if "pids" in self._controllers and limits.processes is not None:
            _write(f"{self.path}/pids.max", str(limits.processes + PROCESSES_MARGIN))
        return holds

    def members(self) -> list[int]:
        with contextlib.suppress(OSError):
            return [int(pid) for pid in _read(f"{self.path}/cgroup.procs").split()]
        return []

    def kill(self) -> bool:
        """Kill all processes in it, including those that are being forked; False before Linux 5.14."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def usage(self) -> CgroupUsage:
        """Return what all processes that have ever been in it have used."""
        cpu = _table(f"{self.path}/cpu.stat").get("usage_usec", 0) / 1e6
        if "memory" not in self._controllers:
            return CgroupUsage(cpu)
        peak = 0
        with contextlib.suppress(OSError, ValueError):  # since 5.19
            peak = int(_read(f"{self.path}/memory.peak"))
        events = _table(f"{self.path}/memory.events")
        # Without an `oom` event of its own, the cell was killed because another cgroup or the machine ran out of memory.
        return CgroupUsage(cpu, peak, events.get("oom_kill", 0) if events.get("oom", 0) else 0)

    def remove(self) -> bool:
        """Remove the cgroup; return False if it still has processes."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def __repr__(self) -> str:
        return f"<Cgroup {os.path.basename(self.path)} of {len(self.members())}>"


class CgroupTree:
    """The cgroups of this daemon's cells.

    Args:
        base: The path of the delegated cgroup; empty, the default, where there is none.
        controllers: The controllers that are enabled in it; none by default.
        reason: Why there are no cgroups; empty by default.
    """

    def __init__(self, base: str = "", controllers: frozenset[str] = frozenset(), reason: str = "") -> None:
        self.base = base
        self.controllers = controllers
        self.reason = reason
        """Why there are no cgroups; empty where there are."""
        self._numbers = itertools.count(1)
        self._unremoved: list[Cgroup] = []  # still had processes when they were to be removed

    @property
    def available(self) -> str:
        """One line for the user: "yes" or "no", and why."""
        if self.reason:
            return f"no: {self.reason}"
        return (
            f"yes: {self.base}, which holds {', '.join(sorted(self.controllers)) or 'nothing and can kill'}"
        )

    @classmethod
    def claim(cls) -> CgroupTree:
        """Use the cgroup of this process: move into its `supervisor`, and remove the cells of daemons that have ended."""
        mount = _mount()
        if mount is None:
            return cls(reason=UNMOUNTED)
        own = _own_path()
        base = os.path.dirname(own) if os.path.basename(own) == SUPERVISOR else own
        path = mount + base.rstrip("/")
        if not _is_delegated(path):
            return cls(
                reason=f"the control group {base} is not delegated to the daemon; "
                "run it with the systemd unit that comes with it, or set Delegate=yes in your own unit"
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
        """Make the cgroup of one cell; None where there are no cgroups, or their number is limited."""
        self._unremoved = [cgroup for cgroup in self._unremoved if not cgroup.remove()]
        if not self.base:
            return None
        path = f"{self.base}/cell-{os.getpid()}-{next(self._numbers)}"
        try:
            os.mkdir(path)
        except OSError:
            # The maximum of the delegation is reached: only the limit monitor enforces the limits
            return None
        return Cgroup(path, self.controllers)

    def remove(self, cgroup: Cgroup) -> bool:
        """Remove a cell's cgroup; if it is not empty, return False and try again at the next `make`."""
        if cgroup.remove():
            return True
        self._unremoved.append(cgroup)
        return False

    def close(self) -> None:
        """Remove the cgroups that could not be removed before."""
        self._unremoved = [cgroup for cgroup in self._unremoved if not cgroup.remove()]

    def _sweep(self) -> None:
        """Kill and remove the cells of daemons that have ended."""
        for entry in os.listdir(self.base):
            match = _CELL.fullmatch(entry)
            if match is None or self._is_daemon(int(match[1])):
                continue
            cgroup = Cgroup(f"{self.base}/{entry}", self.controllers)
            cgroup.kill()
            if not cgroup.remove():
                self._unremoved.append(cgroup)  # its processes are about to exit

    def _is_daemon(self, pid: int) -> bool:
        """Return whether the process is another running daemon with the same base."""
        return pid != os.getpid() and str(pid) in _read(f"{self.base}/{SUPERVISOR}/cgroup.procs").split()


def _mount() -> str | None:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if kind == "cgroup2":
                return place
    return None


def _own_path() -> str:
    """Return this process's cgroup in version 2; "/" where that is the root, or where it is hidden."""
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    return "/"


def _is_delegated(path: str) -> bool:
    """Return whether the cgroup is delegated: it is marked so, or, unless we are root, belongs to our user."""
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
    """Enable a controller for the cgroups below; False where that fails."""
    try:
        _write(f"{path}/cgroup.subtree_control", f"+{controller}")
    except OSError:
        return False
    return True


def _table(path: str) -> dict[str, int]:
    """Read a file of lines with a name and a number; empty where that fails."""
    with contextlib.suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in _read(path).splitlines())}
    return {}


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """Write in one system call, because the kernel takes each as one command."""
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)
