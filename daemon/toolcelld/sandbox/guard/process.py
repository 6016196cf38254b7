"""The guard's own process: the parent of a worker, from before its last steps of confinement to its end."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Final, NoReturn

from toolcelld import linux
from toolcelld.sandbox.guard.operations import Operations
from toolcelld.sandbox.guard.questions import Gone, Listener, program
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

__all__ = ["Asking", "stand_guard"]

READY: Final = b"+"
RETRY_MILLISECONDS: Final = 5
"""Between two looks whether a pipe has a reader."""
RETRY_MILLISECONDS_MAX: Final = 100
RETRY_SHARE: Final = 20
"""How many times as long as a look the pause after it is."""
CALLS: Final = (
    "brk", "clock_gettime", "close", "exit", "exit_group", "fcntl", "fstat", "ftruncate", "futex", "getdents64",
    "getpid", "getrandom", "gettid", "ioctl", "kill", "link", "linkat", "lseek", "madvise", "mkdir", "mkdirat",
    "mknod", "mknodat", "mmap", "mprotect", "mremap", "munmap", "newfstatat", "open", "openat", "openat2", "pause",
    "pidfd_getfd", "pidfd_open", "poll", "ppoll", "process_vm_readv", "read", "readlink", "readlinkat", "renameat2",
    "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sendto", "symlink", "symlinkat", "umask",
    "wait4", "write",
)  # fmt: skip
"""What the guard calls from its first question on."""


class Asking:
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


def stand_guard(make: Callable[[Listener], Operations], *, abort_signal: int) -> Asking:
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
        return Asking(theirs)
    theirs.close()
    try:
        _guard(ours, worker, make, abort_signal)
    finally:
        os._exit(1)  # and the worker with it


def _guard(
    channel: socket.socket, worker: int, make: Callable[[Listener], Operations], abort_signal: int
) -> NoReturn:
    gc.disable()
    gc.freeze()
    linux.set_dumpable(False)
    linux.subreaper()  # so that all that asks is below this process

    handled = {abort_signal, signal.SIGCHLD}
    aborts: list[None] = []
    pause, again = RETRY_MILLISECONDS, 0.0

    def forward(*_: object) -> None:
        aborts[:] = [None]
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, abort_signal)

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == worker:
                    _exit_as(os.waitstatus_to_exitcode(ended[1]))

    signal.signal(abort_signal, forward)
    signal.signal(signal.SIGCHLD, reap)
    held = channel.detach()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # what was refused is told on 2
        os.dup2(null, number)
    os.dup2(held, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    with socket.socket(fileno=3) as ours:
        said, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if said != READY or not descriptors:
            while True:
                signal.pause()  # the worker failed, and has said so
        listener = Listener(descriptors[0])
        operations = make(listener)
        machine = os.uname().machine
        calls = [call for call in CALLS if call in NUMBERS[machine]]
        linux.filter_system_calls(seccomp.only(calls, machine))
        ours.sendall(READY)
    while True:
        try:
            asked = listener.wait(pause if operations.is_waited_for else None)
        except Gone:
            signal.pause()  # the last caller has ended, and the worker's end comes
            continue
        # An answer that a signal interrupts is half given: the caller of an open would read a number that is none.
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        if asked is not None:
            operations.answer(asked)
        if operations.is_waited_for and (now := time.monotonic()) >= again:
            operations.try_again(interrupted=bool(aborts))
            aborts.clear()
            # However many wait, others are served nearly all of the time.
            took = (time.monotonic() - now) * 1000
            pause = min(RETRY_MILLISECONDS + round(took * RETRY_SHARE), RETRY_MILLISECONDS_MAX)
            again = time.monotonic() + pause / 1000
        elif not operations.is_waited_for:
            aborts.clear()  # what is asked later is not interrupted by it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)


def _exit_as(code: int) -> NoReturn:
    """End as the worker has, so that the keeper reports what happened to it."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))
