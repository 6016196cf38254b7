"""Have a process make one system call that it never wrote: how a test has a process exit, or close what it holds.

A signal can kill a process from outside, but not make it exit with 0 or lose its descriptors. The
tracer can: it stops the main thread, has a `syscall` instruction where that stands, lets it take
one step, and puts everything back. x86-64 and a tracer with the right to trace; see `CAN_INJECT`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from typing import Any

__all__ = ["CAN_INJECT", "close_all_above_stderr", "exit_with_zero"]

CAN_INJECT = platform.machine() == "x86_64" and os.geteuid() == 0

EXIT_GROUP, CLOSE_RANGE = 231, 436
PEEKTEXT, POKETEXT, GETREGS, SETREGS, ATTACH, DETACH, SINGLESTEP = 1, 4, 12, 13, 16, 17, 9
SYSCALL = 0x050F
WORD = (1 << 64) - 1
NAMES = [
    "r15",
    "r14",
    "r13",
    "r12",
    "rbp",
    "rbx",
    "r11",
    "r10",
    "r9",
    "r8",
    "rax",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "orig_rax",
    "rip",
    "cs",
    "eflags",
    "rsp",
    "ss",
    "fs_base",
    "gs_base",
    "ds",
    "es",
    "fs",
    "gs",
]


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request: int, pid: int, address: int = 0, data: Any = 0) -> int:
    ctypes.set_errno(0)
    answer: int = libc.ptrace(request, pid, address, data)
    if answer == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number), f"ptrace {request} of {pid}")
    return answer


def exit_with_zero(pid: int) -> None:
    """Have it exit with status 0, now."""
    inject(pid, EXIT_GROUP, 0)


def close_all_above_stderr(pid: int) -> None:
    """Have it close every descriptor from 3 up, and go on."""
    inject(pid, CLOSE_RANGE, 3, 0xFFFFFFFF, 0)


def inject(pid: int, call: int, *arguments: int) -> None:
    ptrace(ATTACH, pid)
    os.waitpid(pid, 0x40000000)  # __WALL: a tracer waits for what is not its child
    before, registers = Registers(), Registers()
    ptrace(GETREGS, pid, 0, ctypes.byref(before))
    ctypes.memmove(ctypes.byref(registers), ctypes.byref(before), ctypes.sizeof(before))
    # What waits in the kernel has just executed one; writing another could be met by its other threads.
    there: int = before.rip - 2
    if ptrace(PEEKTEXT, pid, there) & 0xFFFF != SYSCALL:
        there = before.rip
    code = ptrace(PEEKTEXT, pid, there) & WORD
    ptrace(POKETEXT, pid, there, (code & ~0xFFFF) | SYSCALL)
    registers.rip = there
    registers.rax, registers.orig_rax = call, WORD
    for name, value in zip(("rdi", "rsi", "rdx"), arguments, strict=False):
        setattr(registers, name, value)
    ptrace(SETREGS, pid, 0, ctypes.byref(registers))
    ptrace(SINGLESTEP, pid)
    _, status = os.waitpid(pid, 0x40000000)
    arrived: list[int] = []  # meanwhile: an abort is repeated every few milliseconds
    while os.WIFSTOPPED(status) and os.WSTOPSIG(status) != signal.SIGTRAP:
        arrived.append(os.WSTOPSIG(status))
        ptrace(SINGLESTEP, pid)
        _, status = os.waitpid(pid, 0x40000000)
    if os.WIFSTOPPED(status):
        ptrace(POKETEXT, pid, there, code)
        ptrace(SETREGS, pid, 0, ctypes.byref(before))
        ptrace(DETACH, pid)
        for number in arrived:
            os.kill(pid, number)
