"""The guard's own process: the parent of a worker, from before its last steps of confinement to its end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # see `_sigmask`
import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from toolcelld import linux, titles
from toolcelld.sandbox.guard.operations import Operations
from toolcelld.sandbox.guard.questions import Listener, SignalWait, program
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

READY: Final = b"+"
CHANNEL: Final = 3
RETRY_MILLISECONDS: Final = 5
"""Between two looks whether a pipe has a reader."""
RETRY_MILLISECONDS_MAX: Final = 100
RETRY_SHARE: Final = 20
"""How many times as long as a look the pause after it is."""
_sigmask: Callable[..., Any] = _signal.pthread_sigmask  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
"""That of `signal` makes enums of the former mask, which the guard has no use for."""
CALLS: Final = (
    "brk", "clock_gettime", "close", "exit", "exit_group", "fcntl", "fstat", "ftruncate", "futex", "getdents64",
    "getpid", "getrandom", "gettid", "ioctl", "kill", "link", "linkat", "lseek", "madvise", "mkdir", "mkdirat",
    "mknod", "mknodat", "mmap", "mprotect", "mremap", "munmap", "newfstatat", "open", "openat", "openat2",
    "pidfd_getfd", "pidfd_open", "poll", "ppoll", "process_vm_readv", "read", "readlink", "readlinkat", "renameat2",
    "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sendto", "symlink", "symlinkat", "umask",
    "wait4", "write",
)  # fmt: skip
"""What the guard calls from its first question on."""


class AskingFilter:
    """The worker's side: loads the filter that asks, when the rest of the confinement is on."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def begin(self, *, executes: bool) -> None:
        """Have every process from here on ask the guard."""
        with self._channel as channel:
            asked = linux.ask_about_system_calls(
                program(os.uname().machine, executes=executes), killable=True
            )
            try:
                socket.send_fds(channel, [READY], [asked])
            finally:
                os.close(asked)
            if channel.recv(1) != READY:
                raise OSError("the guard has ended")


def stand_guard(make: Callable[[Listener], Operations], *, abort_signal: int) -> AskingFilter:
    """Fork; return in the child, which goes on as the worker. The parent is its guard until it ends, and ends as it did.

    Args:
        make: Makes what answers the questions.
        abort_signal: What the keeper sends to this process and is meant for the worker.
    """
    ours, theirs = socket.socketpair()
    guard = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {abort_signal, signal.SIGCHLD})
    worker = os.fork()
    if not worker:
        ours.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {abort_signal, signal.SIGCHLD})
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(0)
        return AskingFilter(theirs)
    theirs.close()
    try:
        _Guard(worker, abort_signal).run(ours, make)
    finally:
        os._exit(1)  # and the worker with it


class _Guard:
    def __init__(self, worker: int, abort_signal: int) -> None:
        titles.set_title("guard")
        gc.disable()
        gc.freeze()
        linux.set_dumpable(False)
        linux.subreaper()  # so that every process that asks is below this one
        self._worker = worker
        self._abort_signal = abort_signal
        self._aborted = False  # since the last look at the pipes without a reader
        self._handled = {abort_signal, signal.SIGCHLD}
        signal.signal(abort_signal, self._forward)
        signal.signal(signal.SIGCHLD, self._reap)

    def run(self, channel: socket.socket, make: Callable[[Listener], Operations]) -> NoReturn:
        """Take the listener, enter the guard's own filter, and answer until the worker exits."""
        _keep_only(channel.detach())
        signals = SignalWait()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handled)
        with socket.socket(fileno=CHANNEL) as ours:
            said, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            if said != READY or not descriptors:
                while True:
                    signals.wait()  # the worker has failed, and reports it
            listener = Listener(descriptors[0], signals)
            operations = make(listener)
            machine = os.uname().machine
            calls = [call for call in CALLS if call in NUMBERS[machine]]
            linux.filter_system_calls(seccomp.only(calls, machine))
            ours.sendall(READY)
        self._serve(listener, operations)

    def _serve(self, listener: Listener, operations: Operations) -> NoReturn:
        pause, again = RETRY_MILLISECONDS, 0.0
        while True:
            asked = listener.wait(pause if operations.is_waited_for else None)
            # An answer that a signal interrupts is half given: the caller of an open would read a number that is none.
            _sigmask(signal.SIG_BLOCK, self._handled)
            if asked is not None:
                operations.answer(asked)
            if not operations.is_waited_for:
                self._aborted = False  # a later call is not interrupted by it
            elif (now := time.monotonic()) >= again:
                operations.try_again(interrupted=self._aborted)
                self._aborted = False
                # However many pipes have no reader, nearly all of the time is left for other calls.
                took = (time.monotonic() - now) * 1000
                pause = min(RETRY_MILLISECONDS + round(took * RETRY_SHARE), RETRY_MILLISECONDS_MAX)
                again = time.monotonic() + pause / 1000
            _sigmask(signal.SIG_UNBLOCK, self._handled)

    def _forward(self, *_: object) -> None:
        self._aborted = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._worker, self._abort_signal)

    def _reap(self, *_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._worker:
                    linux.exit_as(os.waitstatus_to_exitcode(ended[1]))


def _keep_only(channel: int) -> None:
    """Close every descriptor but the channel and the cell's stderr, on which refusals are told."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.dup2(channel, CHANNEL)
    os.closerange(CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
