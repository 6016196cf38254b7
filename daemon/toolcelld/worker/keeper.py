"""The keeper of one cell: builds it, forks the worker, forwards signals, and reports exits.

The keeper is the worker's parent, and reaps every process below it. Its life line to the
daemon is a SOCK_SEQPACKET pair with short ASCII messages:

    daemon → keeper   go       build the cell (the barrier)
                      abort    signal the worker to look at its abort channel
                      count    count the processes besides the worker
                      guarded  the worker has become the guard of another one, its first child (see `sandbox.guard`)
                      end      kill the cell now
    keeper → daemon   pid N [I]        the worker's process, and the cell's own init in `strict`
                      left N           the answer to count
                      exit S CPU RSS   the worker ended: wait status, seconds, peak KiB (sent by init in `strict`);
                                       if it was killed with its cell, the usage is that of the whole cell
                      empty N HOW      the cell is empty, N were killed, by "namespace", "landlock" or "children"

A closed life line has the effect of `end`, so no cell outlives the daemon. When the worker exits,
for any reason, the keeper kills the rest of the cell. `empty` proves that the cell has stopped: the keeper
is a subreaper, so every orphan of the cell becomes its child, and it sends `empty` when `wait` reports no child.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from toolcelld import linux, titles
from toolcelld.protocol.frames import encode
from toolcelld.protocol.messages import LINE_CHARACTERS_MAX, FailedMessage
from toolcelld.sandbox import setup
from toolcelld.sandbox.setup import LIFE, PROTOCOL, REPORTS, CellPlan, SetupFailed
from toolcelld.worker import main

EXIT_SETUP_FAILED: Final = 70  # EX_SOFTWARE of <sysexits.h>
STOP_SIGNAL: Final = signal.SIGQUIT
"""Sent by the keeper to init, which alone can signal all of its namespace at once: init stops them. Not one of
`linux.UNUSED_SIGNALS`, which have no effect."""
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
SAMPLED_MAX: Final = 64
"""Processes whose usage is read before they are killed, at 30 µs each: the default limit of a tool's processes."""
LISTED_MAX: Final = 1024
"""Processes that are listed before they are killed, at 30 µs each: a chain of forks without an end delays nothing more."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What some processes had used when their usage was read."""

    cpu_seconds: float
    memory_peak_kib: int  # of the largest


NO_USAGE: Final = ProcessUsage(0.0, 0)


def keep(plan: CellPlan) -> NoReturn:
    """Run a keeper in a newly forked process, until its cell is empty; exits the process."""
    try:
        setup.walk(setup.AROUND, plan)
        first = os.fork()
        if first == 0:
            (_be_init if plan.apart else _be_worker)(plan)
    except SetupFailed as failure:
        _report_failure(str(failure))
        os._exit(EXIT_SETUP_FAILED)
    _Keeper(first, apart=plan.apart, scoped=plan.scoped).run()
    os._exit(0)


def _be_worker(plan: CellPlan) -> NoReturn:
    titles.set_title("worker")
    setup.default_signals()
    setup.walk(setup.BORN, plan)
    setup.walk(setup.BEHIND, plan)
    os.close(LIFE)
    setup.open_standard_streams()
    for hooks in plan.fork_hooks:
        os.register_at_fork(**hooks)  # for the forks of the tool
        if after := hooks.get("after_in_child"):
            after()
    main.main(plan)


def _be_init(plan: CellPlan) -> NoReturn:
    """Run the first process of a cell's own process namespace; when it exits, the kernel kills all others in it."""
    plan.parent_pid = 0  # a parent outside the namespace has no pid in it
    setup.walk(setup.BORN, plan)
    plan.parent_pid = os.getpid()
    worker = os.fork()
    if worker == 0:
        _be_worker(plan)
    titles.set_title("init")
    life = socket.socket(fileno=LIFE)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.closerange(PROTOCOL, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(STOP_SIGNAL, _stop_all)
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == worker:
            _send(life, _exit_message(status, usage))
            os._exit(0)


def _report_failure(message: str) -> None:
    with contextlib.suppress(OSError):  # the daemon has closed the channel
        os.write(REPORTS, encode(FailedMessage(message=message[:LINE_CHARACTERS_MAX])))


class _Keeper:
    def __init__(self, first: int, *, apart: bool, scoped: bool) -> None:
        self._first = first  # the worker, or the init that is the worker's parent
        self._apart = apart
        self._first_alive = True
        self._worker = 0 if apart else first
        self._worker_pidfd = -1
        self._has_guard = False  # which passes the abort signal on to the worker
        self._scoped = scoped
        self._killed = 0
        self._sampled = NO_USAGE
        self._life = socket.socket(fileno=LIFE)
        # Only the worker keeps the tool's descriptors, so that the daemon reads their end when the cell is empty.
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(PROTOCOL, os.sysconf("SC_OPEN_MAX"))
        self._woken, waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        """Handle the daemon's messages until the worker exits or the daemon ends the cell."""
        while self._apart and not self._worker and self._first_alive:
            self._reap()  # init may have exited already
            self._worker = next(iter(children(self._first)), 0)
        self._hold_worker()
        self._send(f"pid {self._worker}{f' {self._first}' if self._apart else ''}")
        poll = select.poll()
        poll.register(self._life, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        self._reap()  # children that exited before the wake-up descriptor was set
        while self._first_alive:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken.fileno():
                    self._woken.recv(4096)
                    self._reap()
                elif not self._handle_request():
                    return self._end()
        return self._end()

    def _hold_worker(self) -> None:
        """Open the worker's pidfd. Init may reap it, so its pid is looked up again when the descriptor is there."""
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(self._worker) if self._worker else -1
            if not self._apart or self._worker in children(self._first):
                self._worker_pidfd = pidfd

    def _handle_request(self) -> bool:
        try:
            message = self._life.recv(64)
        except ConnectionError:
            return False
        if message == b"count":
            self._reap()
            self._send(f"left {self._count_processes()}")
        elif message == b"abort" and self._first_alive:
            self._signal_worker()
        elif message == b"guarded":
            self._has_guard = True
        return message not in (b"", b"end")

    def _signal_worker(self) -> None:
        if self._worker_pidfd >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._worker_pidfd, setup.ABORT_SIGNAL)

    def _count_processes(self) -> int:
        own = children(os.getpid())
        if self._apart:
            own |= children(self._first)
            own.discard(self._first)
        own.discard(self._worker)
        if not self._first_alive:
            return len(own)
        below = children(self._worker)
        if self._has_guard and (worker := linux.first_child(self._worker)):
            below = below - {worker} | children(worker)
        return len(own) + len(below)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while self._wait(os.WNOHANG):
                pass

    def _wait(self, options: int) -> int:
        pid, status, usage = os.wait4(-1, options)
        if pid == self._first:
            self._first_alive = False
            if not self._apart or status:  # an init that was killed has not reported the worker's exit
                self._send(_exit_message(status, usage, self._sampled))
        return pid

    def _end(self) -> None:
        """Kill and reap until the keeper has no child left."""
        # The usage is read before the kill: the kernel does not account processes that end with their namespace, nor
        # children that their parent has not waited for.
        in_namespace = listed = 0
        guards = 1 if self._has_guard and self._first_alive else 0
        if self._first_alive:
            # A stopped process does not fork while the others are read, and leaves the processors to who reads.
            with contextlib.suppress(ProcessLookupError):
                if self._apart:
                    os.kill(self._first, STOP_SIGNAL)
                elif self._scoped:
                    os.kill(-1, signal.SIGSTOP)
            below = descendants(self._first)
            in_namespace = len(below) if self._apart else 0
            listed = 0 if self._apart else 1 + len(below)
            self._sampled = measure_usage([self._first, *below])
        with contextlib.suppress(ChildProcessError):
            while True:
                self._kill()
                self._wait(0)
                self._killed += 1
        proof = "namespace" if self._apart else "landlock" if self._scoped else "children"
        # The kernel reaps a child that is killed before its parent, where the parent ignores SIGCHLD.
        killed = max(self._killed + max(0, in_namespace - 1), listed)
        self._send(f"empty {killed - guards} {proof}")

    def _kill(self) -> None:
        """Send SIGKILL to every process of the cell. Its init takes all of its namespace along, and is reaped after them."""
        if not self._apart:
            kill_all(scoped=self._scoped)
        elif self._first_alive:
            os.kill(self._first, signal.SIGKILL)

    def _send(self, text: str) -> None:
        _send(self._life, text)


def _send(life: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # the daemon has exited; the cell is cleaned up nevertheless
        life.send(text.encode("ascii"), socket.MSG_NOSIGNAL)


def _exit_message(status: int, usage: resource.struct_rusage, sampled: ProcessUsage = NO_USAGE) -> str:
    seconds = max(usage.ru_utime + usage.ru_stime, sampled.cpu_seconds)
    return f"exit {status} {seconds:.6f} {max(usage.ru_maxrss, sampled.memory_peak_kib)}"


def _stop_all(*_: object) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGSTOP)  # init itself is left out


def _wake(*_: object) -> None:
    """A signal handler that does nothing: the wake-up descriptor interrupts `poll`."""


def kill_all(*, scoped: bool, spare: Iterable[int] = ()) -> None:
    """Send SIGKILL to every process below this one.

    Args:
        scoped: Whether a Landlock scope limits this process's signals to its cell.
        spare: Children that are not killed; none by default. Only without `scoped`.
    """
    if scoped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    # Without the scope, kill the tree that /proc shows. A process that forks meanwhile is killed in the next pass.
    spared_pids = set(spare)
    pending = [pid for pid in children(os.getpid()) if pid not in spared_pids]
    while pending:
        pid = pending.pop()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)  # it must not fork while its children are read
            pending += children(pid)
            os.kill(pid, signal.SIGKILL)


def measure_usage(pids: Sequence[int]) -> ProcessUsage:
    """Return what these processes and their reaped children have used; only of the first `SAMPLED_MAX`."""
    seconds, peak = 0.0, 0
    for pid in pids[:SAMPLED_MAX]:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            seconds += sum(map(int, fields[11:15])) / TICKS_PER_SECOND
            peak = max(peak, int(_read(f"/proc/{pid}/status").partition(b"VmHWM:")[2].split(None, 1)[0]))
    return ProcessUsage(seconds, peak)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def descendants(pid: int) -> set[int]:
    """Return the processes below `pid`, at most `LISTED_MAX`; those forked meanwhile may be missing."""
    pids: set[int] = set()
    pending = [pid]
    while pending and len(pids) < LISTED_MAX:
        new = children(pending.pop()) - pids
        pids |= new
        pending += new
    return pids


def children(pid: int) -> set[int]:
    """Return the processes whose parent is `pid`; empty when it has exited."""
    pids: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                pids.update(map(int, file.read().split()))
    return pids
