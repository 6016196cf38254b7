"""Measures what the processes of a cell use together, from /proc.

Memory is what would be free without the cell: anonymous and shared pages, also those in swap, where a tool can put them by
itself (`MADV_PAGEOUT`), huge ones, not mapped files, and the tables of pages: those of pages that were only read may be all
there is. There are two figures.
Resident pages are fast to read, but a shared page counts once for each process, so a worker that forks ten children
seems to use ten times as much; `measure` reads them. Proportional pages are exact and take twenty times as long, and the
kernel sums them up under a lock that a process holds while it forks or maps memory: reading those of a fork bomb waits
for the bomb. So `measure_exactly` runs in a thread, and only if the fast sum is over the limit.

psutil takes nine times as long, and `measure` runs on the daemon's loop.
All values come from the kernel, except the name of a process, which the tool can choose.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from toolcell._units import format_bytes, format_seconds

PROCESSES_READ_MAX: Final = 1024
"""The largest limit that is allowed by default; measuring so many processes takes about 50 ms."""
EXACT_SECONDS_MAX: Final = 2.0
"""For the exact memory of a cell: a process takes a millisecond, one that holds the lock of its memory as long as it likes."""
ENTRIES_READ_MAX: Final = 100_000
"""Of a directory tree; reading so many takes a second on an idle disk."""
ENTRY_BYTES: Final = 4096
"""The least size of an entry: a file of one byte takes a block, an empty one an inode."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system."""
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
UNSHARED: Final = (b"VmPTE:", b"HugetlbPages:")
"""What is counted in full also where pages are counted by their parts: the tables, and huge pages, which have no such figure."""
RESIDENT: Final = (b"RssAnon:", b"RssShmem:", b"VmSwap:", *UNSHARED)
PROPORTIONAL: Final = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
READ_BYTES: Final = 16 * 1024
"""More than any of these files has, except lists of children that are far over every limit."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a cell."""

    pid: int
    name: str
    tasks: int
    """The number of its threads; 1 for a process that is dead and not reaped."""
    cpu_seconds: float
    """Without what its children used."""
    memory_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class CellUsage:
    """What a cell uses, at one time."""

    members: tuple[Member, ...]
    cpu_seconds: float
    """Of all processes that are or were in it."""
    templates: int = 0
    """Processes among the members that wait for the process of a call."""

    @property
    def memory_bytes(self) -> int:
        """The sum over all processes."""
        return sum(member.memory_bytes for member in self.members)

    @property
    def tasks(self) -> int:
        """The number of processes and threads, without templates."""
        return sum(member.tasks for member in self.members) - self.templates


def measure(
    builders: Sequence[int],
    *,
    tasks_limit: int | None = None,
    templates: int = 0,
    guard: int = 0,
) -> CellUsage:
    """Measure what the processes below a cell's builders use, each shared page once for each process.

    Waits for no process: it reads no file of the kernel's that takes a lock of one for longer than it is copied.

    The builders are our own processes, so only the processor time of their reaped children counts; and that of a guard, which
    works for the others.

    Args:
        builders: The pids of the cell's keeper, of its init in `strict`, and of its guard, in that order.
        tasks_limit: Of more processes and threads than this no memory is read; None, the default, for no limit.
        templates: Of the members, those that do not count as processes; 0 by default.
        guard: The builder that is a guard; 0, the default, for none.
    """
    members: list[Member] = []
    cpu_seconds = 0.0
    waiting = [builders[0]]
    seen: set[int] = set()
    most = PROCESSES_READ_MAX if tasks_limit is None else len(builders) + templates + tasks_limit + 1
    while waiting and len(seen) < min(most, PROCESSES_READ_MAX):
        pid = waiting.pop()
        seen.add(pid)
        try:
            member, of_children = _member(pid)
            waiting += _children(pid, member.tasks) - seen
        except (OSError, ValueError):
            continue  # it has exited, and its parent accounts for it
        cpu_seconds += of_children
        if pid not in builders:
            cpu_seconds += member.cpu_seconds
            members.append(member)
        elif pid == guard:
            cpu_seconds += member.cpu_seconds
    # Processes that were listed and not measured count as well.
    unmeasured = [Member(pid, "?", 1, 0.0) for pid in waiting if pid not in builders]
    usage = CellUsage((*members, *unmeasured), cpu_seconds, templates)
    if tasks_limit is not None and usage.tasks > tasks_limit:
        return usage  # it is to be killed, and reading the memory of many processes would delay that
    members = [replace(member, memory_bytes=_resident(member.pid)) for member in members]
    return replace(usage, members=(*members, *unmeasured))


def measure_exactly(usage: CellUsage, clock: Callable[[], float] = time.monotonic) -> CellUsage:
    """Return what `measure` has returned with each page counted once. Blocks while a process holds the lock of its memory.

    Args:
        usage: What was measured; of the processes that have exited since nothing counts.
        clock: Returns the time in seconds; monotonic by default. Processes that are not read within `EXACT_SECONDS_MAX`
            count as they were measured, so that a cell cannot put its limit off by holding locks.
    """
    deadline = clock() + EXACT_SECONDS_MAX
    members = (
        replace(member, memory_bytes=_proportional(member)) if clock() < deadline else member
        for member in usage.members
    )
    return replace(usage, members=tuple(members))


def _read(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, READ_BYTES)
    finally:
        os.close(number)


def _member(pid: int) -> tuple[Member, float]:
    """Return a process, and the seconds that its reaped children used."""
    before, _, after = _read(f"/proc/{pid}/stat").rpartition(b")")
    fields = after.split()
    own, of_children = (
        (int(fields[first]) + int(fields[first + 1])) / TICKS_PER_SECOND for first in (11, 13)
    )
    return Member(pid, _printable(before.partition(b"(")[2]), int(fields[17]), own), of_children


def _printable(name: bytes) -> str:
    """Return a process's name as one printable line; a tool can choose any name."""
    text = name.decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in text) or "?"


def _children(pid: int, tasks: int) -> set[int]:
    threads: Iterable[str] = (str(pid),) if tasks == 1 else os.listdir(f"/proc/{pid}/task")
    pids: set[int] = set()
    for thread in threads:
        with contextlib.suppress(OSError):  # a thread that ended since
            data = _read(f"/proc/{pid}/task/{thread}/children")
            # A truncated list may end inside a number.
            pids.update(map(int, (data if len(data) < READ_BYTES else data[: data.rfind(b" ")]).split()))
    return pids


def resident_memory(pid: int) -> tuple[int, int]:
    """Return the resident memory of one process in bytes, mapped files included: now and at most.

    Both are 0 for a process that has ended, and for the pid 0.
    """
    with contextlib.suppress(OSError):
        status = _read(f"/proc/{pid}/status")
        return _sum(status, (b"VmRSS:",)), _sum(status, (b"VmHWM:",))
    return 0, 0


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return _sum(_read(f"/proc/{pid}/status"), RESIDENT)
    return 0


def _proportional(member: Member) -> int:
    """Return its proportional part of shared pages; the resident ones where reading is not permitted."""
    try:
        shared = _sum(_read(f"/proc/{member.pid}/smaps_rollup"), PROPORTIONAL)
        return shared + _sum(_read(f"/proc/{member.pid}/status"), UNSHARED)
    except PermissionError:
        return member.memory_bytes
    except OSError:
        return 0  # it has exited, and the others account for the shared pages


def _sum(table: bytes, keys: tuple[bytes, ...]) -> int:
    """Return the sum in bytes of the lines that begin with a key; their values are in KiB."""
    return sum(int(line.split()[1]) for line in table.splitlines() if line.startswith(keys)) * 1024


def disk_used(directory: str, enough_bytes: int) -> int:
    """Return the disk space of a directory tree, in bytes.

    Counting stops above `enough_bytes`. Files that are deleted and still open are not counted.
    """
    used = entries = 0
    waiting = [directory]
    while waiting:
        # Removed meanwhile, or not readable.
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as listed:
            for entry in listed:
                entries += 1
                try:
                    used += max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
                if used > enough_bytes or entries >= ENTRIES_READ_MAX:
                    return used
    return used


def passed(
    key: str, figure: float, limit: float, after_seconds: float, usage: CellUsage | None = None
) -> str:
    """Return a message about a passed limit: how far, when, and by which process mostly.

    Args:
        key: The limit: "memory", "processes", "cpu" or "disk".
        figure: What was used, in bytes, processes or seconds.
        limit: The limit, in the same unit.
        after_seconds: The time since the start of the call.
        usage: The usage by process; None, the default, if it is unknown.
    """
    members = usage.members if usage is not None else ()
    match key:
        case "memory":
            text = f"{format_bytes(figure)} of {format_bytes(limit)}"
            most = max(members, key=lambda member: member.memory_bytes, default=None)
            by = f"; most of it in {most}" if most is not None else ""
        case "processes":
            text = f"{figure:g} of {limit:g} processes and threads"
            names: Counter[str] = Counter()
            for member in members:
                names[member.name] += member.tasks
            by = f"; most of them {names.most_common(1)[0][0]}" if names else ""
        case "cpu":
            text = f"{figure:.1f} s of {limit:g} s of processor time"
            most = max(members, key=lambda member: member.cpu_seconds, default=None)
            by = f"; most of it in {most}" if most is not None else ""
        case _:
            text, by = f"{format_bytes(figure)} of {format_bytes(limit)} in its temporary directory", ""
    return f"{text} after {format_seconds(after_seconds)}{by}"
