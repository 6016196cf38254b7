"""One cell, seen from inside: builds it, forks the worker, carries signals in and deaths out.

The keeper is the worker's parent and the reaper of everything below it. Its life line to the
daemon is a SOCK_SEQPACKET pair with short ASCII messages:

    daemon → keeper   go       build the cell (the barrier)
                      abort    signal the worker to look at its abort channel
                      survey   how many processes are below you besides the worker?
                      end      end the cell now
    keeper → daemon   pid N            the worker's process
                      left N           the answer to survey
                      exit S CPU RSS   the worker ended: wait status, seconds, peak KiB
                      empty N HOW      the cell is empty, N were killed, by "landlock" or "children"

The end of the life line is `end` as well: nothing outlives the daemon. When the worker ends,
for whatever reason, the whole cell ends. `empty` is the proof of stop: the keeper says it when
the kernel told it that it has no child left, and every orphan of the cell becomes its child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterable
from typing import Final, NoReturn

from toolcelld.frames import encode
from toolcelld.worker import serve, steps
from toolcelld.worker.steps import LIFE, PROTOCOL, Plan, SetupFailed

__all__ = ["children", "keep", "kill_all"]

EXIT_SETUP_FAILED: Final = 70  # EX_SOFTWARE of <sysexits.h>


def keep(plan: Plan) -> NoReturn:
    """The life of a keeper, from its fork to its exit."""
    try:
        steps.walk(steps.AROUND, plan)
        worker = os.fork()
        if worker == 0:
            steps.walk(steps.BORN, plan)
            os.close(LIFE)
            serve.main(plan)
    except SetupFailed as failure:
        _report_failure(str(failure))
        os._exit(EXIT_SETUP_FAILED)
    _Keeper(worker, scoped=plan.scoped).run()
    os._exit(0)


def _report_failure(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there to hear it
        os.write(PROTOCOL, encode({"type": "failed", "message": message[:1000]}))


class _Keeper:
    def __init__(self, worker: int, *, scoped: bool) -> None:
        self._worker = worker
        self._worker_lives = True
        self._scoped = scoped
        self._killed = 0
        self._life = socket.socket(fileno=LIFE)
        # The tool's descriptors are the worker's now; the daemon sees their end when the cell is gone.
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
        """Serve the daemon until the worker ends or the daemon wants the cell gone."""
        self._tell(f"pid {self._worker}")
        poll = select.poll()
        poll.register(self._life, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        self._reap()  # whoever died before the wake-up was there
        while self._worker_lives:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken.fileno():
                    self._woken.recv(4096)
                    self._reap()
                elif not self._obey():
                    return self._end()
        return self._end()

    def _obey(self) -> bool:
        try:
            word = self._life.recv(64)
        except ConnectionError:
            return False
        if word == b"survey":
            self._reap()
            self._tell(f"left {self._survey()}")
        elif word == b"abort" and self._worker_lives:
            os.kill(self._worker, steps.ABORT_SIGNAL)  # not reaped yet, so the number is still the worker's
        return word not in (b"", b"end")

    def _survey(self) -> int:
        mine = children(os.getpid())
        mine.discard(self._worker)
        return len(mine) + (len(children(self._worker)) if self._worker_lives else 0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while self._wait(os.WNOHANG):
                pass

    def _wait(self, options: int) -> int:
        pid, status, usage = os.wait4(-1, options)
        if pid == self._worker:
            self._worker_lives = False
            self._tell(f"exit {status} {usage.ru_utime + usage.ru_stime:.6f} {usage.ru_maxrss}")
        return pid

    def _end(self) -> None:
        """Kill and reap until the kernel says that there is nobody left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                kill_all(scoped=self._scoped)
                self._wait(0)
                self._killed += 1
        self._tell(f"empty {self._killed} {'landlock' if self._scoped else 'children'}")

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the daemon is gone; what is left to do is done all the same
            self._life.send(text.encode("ascii"), socket.MSG_NOSIGNAL)


def _wake(*_: object) -> None:
    """For a signal that is to interrupt `poll`, through the wake-up descriptor, and no more."""


def kill_all(*, scoped: bool, spare: Iterable[int] = ()) -> None:
    """Send SIGKILL to everything below this process; to nothing else, which `scoped` promises."""
    if scoped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    # Without the scope: the tree as /proc shows it. What forks faster than it is read gets away for a round.
    spared = set(spare)
    waiting = [pid for pid in children(os.getpid()) if pid not in spared]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)  # so that it forks no more while its children are read
            waiting += children(pid)
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> set[int]:
    """The processes whose parent is `pid`, as the kernel lists them; empty when it is gone."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    return found
