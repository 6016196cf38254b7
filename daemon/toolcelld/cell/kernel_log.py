"""What the kernel's log says of processes that it has killed for want of memory, where the daemon may read it.

Reading /dev/kmsg takes CAP_SYSLOG, or a kernel without `dmesg_restrict`. Each read returns one record, and never waits.
What a program writes there has another facility than the kernel's own records, whatever it says; in those the name of a
process, which a tool can choose, has its control characters escaped and comes after the number that is looked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

PATH: Final = "/dev/kmsg"
RECORD_BYTES_MAX: Final = 16 * 1024
"""The kernel's own bound is the half of it; what does not fit is refused."""
RECORDS_AT_ONCE: Final = 256
"""Records that are read before the loop does other work; each takes some microseconds."""
KILLS_MAX: Final = 256
"""The latest; each is asked for when its process has ended."""
INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of <linux/proc_ns.h>
_KERNELS_OWN: Final = re.compile(rb"[0-7],")  # the level alone: its facility is 0
_KILLED: Final = re.compile(
    rb"(?P<what>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?)"
    rb": Killed process (?P<pid>[0-9]{1,10}) \(.*\) total-vm:[0-9]{1,19}kB, anon-rss:(?P<kib>[0-9]{1,19})kB, "
)


class KernelKill(NamedTuple):
    """A record of the kernel."""

    text: str
    host: bool  # not of a control group, but of the whole machine


class KernelLog:
    """Follows the log from now on; `close` it after use.

    Args:
        descriptor: Of /dev/kmsg, which does not block; it is closed with this.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kills: dict[int, tuple[float, KernelKill]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    @classmethod
    def opened(cls) -> KernelLog | None:
        """Follow the log of this kernel; None where it may not be read, or where its numbers of processes are not ours."""
        with contextlib.suppress(OSError):
            if os.readlink("/proc/self/ns/pid") == INITIAL_PID_NAMESPACE:
                descriptor = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(descriptor, 0, os.SEEK_END)
                return cls(descriptor)
        return None

    def kill_of(self, pids: Iterable[int], since: float) -> KernelKill | None:
        """Return the record of a process that was killed after a monotonic time, by its number."""
        self._read()
        found = (self._kills.get(pid) for pid in pids)
        return next((kill for at, kill in filter(None, found) if at >= since), None)

    def close(self) -> None:
        """Follow it no longer."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        for _ in range(RECORDS_AT_ONCE):
            try:
                record = os.read(self._descriptor, RECORD_BYTES_MAX)
            except BrokenPipeError:
                continue  # the kernel has dropped what was not read in time, and goes on with what it has
            except OSError:
                return
            if not record:
                return
            self._take(record)

    def _take(self, record: bytes) -> None:
        head, _, text = record.partition(b";")
        if _KERNELS_OWN.match(head) is None or (found := _KILLED.match(text)) is None:
            return
        pid, mib = int(found["pid"]), int(found["kib"]) // 1024
        what = found["what"].decode()
        self._kills.pop(pid, None)
        kill = KernelKill(f"{what}: Killed process {pid}, which had {mib} MiB", what.startswith("Out"))
        self._kills[pid] = time.monotonic(), kill
        if len(self._kills) > KILLS_MAX:
            del self._kills[next(iter(self._kills))]
