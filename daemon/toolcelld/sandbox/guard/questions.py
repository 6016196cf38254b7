"""The filter that asks the guard, what it asks, and the answers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
import sys
from typing import Final, NamedTuple

from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp

WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
"""What makes a question of an open; `O_TMPFILE` needs one of the first two."""
ALWAYS: Final = (
    "creat", "link", "linkat", "mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "symlink",
    "symlinkat", "truncate",
)  # fmt: skip
OPENS: Final = {"open": 1, "openat": 2}
"""With the argument that has the flags."""
ASKED: Final = (*ALWAYS, *OPENS)
SYNC_WAKE_UP: Final = 1  # SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
ADD: Final = struct.Struct("=QIIII")  # id, flags, descriptor, new number, O_CLOEXEC or 0
DATA: Final = struct.Struct("=QII iIQ 6Q")  # id, process, flags; number, architecture, instruction, arguments
PATH_BYTES_MAX: Final = 4096
PAGE_BYTES: Final = 4096  # the smallest there is
SIGNALS_MAX: Final = 512
"""Signals that are taken from the pipe at once; more are taken by the next wait."""


def program(machine: str, *, executes: bool) -> bytes:
    """Return the filter that asks.

    Args:
        machine: As `uname` names it.
        executes: Whether programs may be started; else the guard is asked about them too.
    """
    always = [*ALWAYS, *(() if executes else ("execve", "execveat"))]
    return seccomp.asking(machine, always, {name: (argument, WRITES) for name, argument in OPENS.items()})


class GuardQuestion(NamedTuple):
    """A system call that waits."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc: Final = ctypes.CDLL(None, use_errno=True)


class SignalWait:
    """Waits for signals, and for one descriptor beside them.

    Python runs a handler between two instructions. A signal that comes after the last of these and before the system call
    that waits would be handled when that call returns, and after the exit of the worker nothing else comes. So a signal
    writes to a pipe too, which is waited for.
    """

    def __init__(self) -> None:
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    def add(self, descriptor: int) -> None:
        """Wait for this descriptor as well."""
        self._poll.register(descriptor, select.POLLIN)

    def remove(self, descriptor: int) -> None:
        """Wait for it no more."""
        self._poll.unregister(descriptor)

    def wait(self, milliseconds: int | None = None) -> int:
        """Return the events of the descriptor; 0 after that time, None for any, and for a signal, which has been handled."""
        found = 0
        for descriptor, events in self._poll.poll(milliseconds):
            if descriptor == self._woken:
                os.read(self._woken, SIGNALS_MAX)
            else:
                found = events
        return found


class Listener:
    """The descriptor that is asked.

    Args:
        descriptor: What the kernel returned for the filter.
        signals: What ends a wait as well.
    """

    def __init__(self, descriptor: int, signals: SignalWait) -> None:
        self._descriptor = descriptor
        # Both processes on one processor, as only one of them runs. Before Linux 6.6 there is no such flag.
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, linux.SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        self._data = bytearray(DATA.size)
        self._nothing = bytes(DATA.size)
        self._text = ctypes.create_string_buffer(PATH_BYTES_MAX + 1)  # and an end
        self._here, self._there = _Span(ctypes.addressof(self._text), 0), _Span(0, 0)
        self._spans = ctypes.byref(self._here), ctypes.byref(self._there)
        self._signals = signals
        signals.add(descriptor)

    def wait(self, milliseconds: int | None = None) -> GuardQuestion | None:
        """Return the next question; None after that time, or where a signal or its caller's end came in between.

        When no process is left that the filter holds, only signals are waited for.

        Args:
            milliseconds: None, the default, for any time.
        """
        events = self._signals.wait(milliseconds)
        if not events & select.POLLIN:
            if events:
                self._signals.remove(self._descriptor)
            return None
        self._data[:] = self._nothing
        try:
            fcntl.ioctl(self._descriptor, linux.SECCOMP_IOCTL_NOTIF_RECV, self._data)
        except (InterruptedError, FileNotFoundError):
            return None
        found = DATA.unpack(self._data)
        return GuardQuestion(found[0], found[1], found[3], found[6:])

    def text(self, question: GuardQuestion, address: int) -> bytes:
        """Return the text that a caller passes, read once. Raises `OSError`."""
        found = b""
        while len(found) < PATH_BYTES_MAX:  # page by page, as the next one need not be there
            at = address + len(found)
            size = min(PAGE_BYTES - at % PAGE_BYTES, PATH_BYTES_MAX - len(found))
            self._here.length = self._there.length = size
            self._there.base = at
            read = _libc.process_vm_readv(question.thread, self._spans[0], 1, self._spans[1], 1, 0)
            if read <= 0:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
            self._text[read] = b"\0"
            part = self._text.value
            found += part
            if len(part) < read:
                return found
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def still_waits(self, question: GuardQuestion) -> bool:
        """Whether the caller still waits for the answer."""
        try:
            fcntl.ioctl(
                self._descriptor, linux.SECCOMP_IOCTL_NOTIF_ID_VALID, question.id.to_bytes(8, sys.byteorder)
            )
        except FileNotFoundError:
            return False
        return True

    def go_on(self, question: GuardQuestion) -> None:
        """Have the caller do it itself."""
        self._answer(linux.ANSWER.pack(question.id, 0, 0, linux.SECCOMP_USER_NOTIF_FLAG_CONTINUE))

    def failed(self, question: GuardQuestion, error: int) -> None:
        """Tell the caller an error."""
        self._answer(linux.ANSWER.pack(question.id, 0, -error, 0))

    def give(self, question: GuardQuestion, descriptor: int, *, closed_on_exec: bool) -> int:
        """Give the caller a copy of a descriptor, and return its number there; it still waits. Raises `OSError`, as EMFILE."""
        # A bytearray, as the call's result is returned for that, and for bytes what they hold.
        add = bytearray(ADD.pack(question.id, 0, descriptor, 0, os.O_CLOEXEC if closed_on_exec else 0))
        number: int = fcntl.ioctl(self._descriptor, linux.SECCOMP_IOCTL_NOTIF_ADDFD, add)
        return number

    def returned(self, question: GuardQuestion, number: int = 0) -> None:
        """Have the caller's call return a number, by default 0."""
        self._answer(linux.ANSWER.pack(question.id, number, 0, 0))

    def _answer(self, answer: bytes) -> None:
        try:  # noqa: SIM105  # a context manager is three more calls in each answer
            fcntl.ioctl(self._descriptor, linux.SECCOMP_IOCTL_NOTIF_SEND, answer)
        except FileNotFoundError:  # the caller has ended, or a signal has taken it away
            pass
