"""The processes of one cell: who they are, whether others are there, what they use, and stopping its worker for a while.

Everything is read from the kernel, so nothing of it waits for the keeper or the worker; but for the exact memory, which is
read in threads of its own (see `usage`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from toolcelld import linux
from toolcelld.cell.processes.forks import Forks
from toolcelld.cell.processes.process_list import ONE_THREAD_LINKS, ProcessList
from toolcelld.cell.processes.usage import CellUsage, measure, measure_exactly
from toolcelld.files.looks import started

PROCESS_CLOCK: Final = 2
"""The processor time of a process among its clocks: CPUCLOCK_SCHED, which clock_getcpuclockid(3) computes."""
THREADS: Final = 4
"""Cells whose exact memory is read at the same time."""

_threads: Final = ThreadPoolExecutor(THREADS, "memory")


def start_threads() -> None:
    """Start the threads that read memory, as `looks.started` does: a bomb of the user's processes leaves no room for them."""
    started(_threads, THREADS)


class CellProcesses:
    """Our own processes of a cell, and its worker. It knows none of them in the beginning."""

    def __init__(self) -> None:
        self.keeper_pid = 0
        self.init_pid = 0  # in `strict` only
        self.guard_pid = 0  # where the project is guarded
        self.worker_pid = 0
        self.has_engine = False
        """Whether the worker runs JavaScript, with an engine that has threads of its own."""
        self.has_server = False
        """Whether the worker has an MCP server beside it, whose processes stay between calls."""
        self.usage: CellUsage | None = None
        """What they used at the last measurement of a call; None before the first."""
        self._worker_pidfd = -1
        self._reading: asyncio.Future[CellUsage] | None = None  # of the exact memory
        self._list: ProcessList | None = None
        self._forks: Forks | None = None  # of a worker that is a template

    @property
    def builders(self) -> tuple[int, ...]:
        """The pids of our own: keeper, init in `strict`, guard, and what holds the memory of a call, where there is one."""
        holder = self._forks.holder if self._forks is not None else 0
        return tuple(pid for pid in (self.keeper_pid, self.init_pid, self.guard_pid, holder) if pid)

    @property
    def _chain(self) -> tuple[int, ...]:
        return (self.keeper_pid, self.init_pid, self.guard_pid, self.worker_pid)

    @property
    def workers(self) -> tuple[int, ...]:
        """The pids of the worker and, where it forks one for each call, of the process of the running or the next one."""
        return (
            (self.worker_pid,)
            if self._forks is None or not self._forks.pid
            else (self.worker_pid, self._forks.pid)
        )

    @property
    def is_template(self) -> bool:
        """Whether the worker forks a process for each call."""
        return self._forks is not None

    @property
    def forked(self) -> int:
        """The number of processes that the worker has forked for the running or the next call."""
        return bool(self._forks.pid) + bool(self._forks.holder) if self._forks is not None else 0

    def begin(self, worker_pid: int, init_pid: int) -> None:
        """Take note of the worker and, in `strict`, of init; 0 where there is none."""
        self.worker_pid, self.init_pid = worker_pid, init_pid
        with contextlib.suppress(OSError):  # it has exited already
            self._worker_pidfd = os.pidfd_open(worker_pid)

    def begin_guarded(self) -> bool:
        """Take note that the worker has forked the real one and is its guard. Return False unless that is so."""
        if self.guard_pid or not self.worker_pid or not (worker := linux.first_child(self.worker_pid)):
            return False
        self.guard_pid = self.worker_pid
        if self._worker_pidfd >= 0:
            os.close(self._worker_pidfd)
            self._worker_pidfd = -1
        self.begin(worker, self.init_pid)
        return True

    def is_clear(self) -> bool:
        """Return whether the cell has no process besides our own, those of its server and a worker with one thread.

        This takes three system calls on open descriptors and no message to the keeper, because it is checked after
        every warm call. False is not certain, as a dead child may not be reaped yet: `Cell.count_leftovers` then asks
        the keeper.
        """
        if not self.worker_pid:
            return False
        if self.has_server:
            return True  # all that is not ours is the server's, and goes on between calls
        try:
            if self._list is None:
                self._list = ProcessList(*self._chain)
            # Threads first: a child of one that ends becomes the main thread's, whose list is read then. Those of an engine
            # come and go; its worker says itself what a call has left behind.
            one_thread = os.fstat(self._list.tasks).st_nlink == ONE_THREAD_LINKS
            if not (one_thread or self.has_engine):
                return False
            for number, expected in self._list.children:
                if os.pread(number, 64, 0).strip() != expected:
                    return False
            return True
        except OSError:
            return False

    def take_forked(self) -> bool:
        """Take the process that the worker has forked for its next call. Return False unless it is there, and alone."""
        try:
            if self._forks is None:
                self._forks = Forks(*self._chain)
            return self._forks.take()
        except OSError:
            return False

    def is_forked_gone(self) -> bool:
        """Whether the process that the worker had forked for a call is gone, with everything that it started."""
        return self._forks is not None and self._forks.is_gone()

    def measure(self, tasks_limit: int | None) -> CellUsage:
        """Measure what all but our own use; see `usage.measure`."""
        return self.measuring(tasks_limit)()

    def measuring(self, tasks_limit: int | None = None) -> Callable[[], CellUsage]:
        """Return what measures that, for a thread: what is known of the processes now is in it."""
        return partial(
            measure,
            self.builders,
            tasks_limit=tasks_limit,
            templates=len(self.workers) - 1,
            guard=self.guard_pid,
        )

    @staticmethod
    def halt(usage: CellUsage) -> None:
        """Stop what was measured just now, of a cell that is to be ended: who ends it waits behind all that runs.

        By numbers, which the kernel gives in turn: one that was read a moment ago is still the same process.
        """
        for member in usage.members:
            with contextlib.suppress(OSError):  # it has exited
                os.kill(member.pid, signal.SIGSTOP)

    @property
    def is_reading_memory(self) -> bool:
        """Whether the exact memory is being read."""
        return self._reading is not None and not self._reading.done()

    def read_memory(self, usage: CellUsage, then: Callable[[CellUsage], object]) -> None:
        """Read the exact memory in a thread, in place of an earlier reading that is not done.

        Args:
            usage: What `measure` has returned.
            then: Called on the loop with the exact usage; not called once the cell has ended.
        """

        def on_read(reading: asyncio.Future[CellUsage]) -> None:
            if not reading.cancelled():
                then(reading.result())

        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.get_running_loop().run_in_executor(_threads, measure_exactly, usage)
        self._reading.add_done_callback(on_read)

    def used_nanoseconds(self) -> int:
        """Return the processor time of the worker and all its threads. Raises `OSError` when it has exited."""
        return sum(time.clock_gettime_ns(~pid << 3 | PROCESS_CLOCK) for pid in self.workers)

    def main_thread_nanoseconds(self) -> int:
        """Return the processor time of the worker's main thread; 0 where the kernel does not tell.

        Raises `OSError` when it has exited.
        """
        used = 0
        for pid in self.workers:
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/schedstat", "rb") as file:
                used += int(file.read().split()[0])
        return used

    def is_running(self) -> bool:
        """Return whether the worker's main thread runs or waits for a processor; False where the kernel does not tell.

        Raises `OSError` when it has exited.
        """
        for pid in self.workers:
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"R":
                    return True
        return False

    def stop_worker(self) -> None:
        """Stop the worker, with all its threads, until `continue_worker`. Raises `OSError` when it has exited."""
        signal.pidfd_send_signal(self._worker_pidfd, signal.SIGSTOP)
        if self._forks is not None:
            self._forks.signal(signal.SIGSTOP)

    def continue_worker(self) -> None:
        """Continue a stopped worker."""
        with contextlib.suppress(OSError):  # it has exited
            signal.pidfd_send_signal(self._worker_pidfd, signal.SIGCONT)
            if self._forks is not None:
                self._forks.signal(signal.SIGCONT)

    def close(self) -> None:
        """Close every descriptor."""
        if self._reading is not None:
            self._reading.cancel()
        if self._list is not None:
            self._list.close()
            self._list = None
        if self._forks is not None:
            self._forks.close()
            self._forks = None
        if self._worker_pidfd >= 0:
            os.close(self._worker_pidfd)
            self._worker_pidfd = -1
