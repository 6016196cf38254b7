"""The one program that a cell without programs executes: the engine or the interpreter of its worker.

A filter that refuses programs has to be loaded before it is executed: an engine cannot load one, and an interpreter may
be the project's. So it has the caller of `execve` wait until a listener answers (seccomp_unotify(2)). The listener is a descriptor of this process,
where a thread lets each call go on. The call that succeeds ends this thread and closes the descriptor, before the first
instruction of the program; a filter without a listener lets nothing through any more, for all processes that it holds.

The kernel asks the newest of several filters, and allows another listener as soon as the first one is closed. So the
filter also refuses to load one with a listener: a tool would answer for its own programs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from toolcelld import linux
from toolcelld.sandbox.system_calls.seccomp import (
    ALLOW,
    AND,
    ARGUMENTS_OFFSET,
    FAIL,
    INSTRUCTION,
    JUMP_IF_EQUAL,
    LOAD,
    NUMBER_OFFSET,
    RETURN,
)
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

__all__ = ["LAYER", "execute", "program"]

LAYER: Final = "no programs"
ASK: Final = 0x7FC00000  # <linux/seccomp.h>: SECCOMP_RET_USER_NOTIF
FLAGS_OFFSET: Final = ARGUMENTS_OFFSET + 8  # the second argument of seccomp(2)

_libc: Final = ctypes.CDLL(None, use_errno=True)


def program(machine: str) -> bytes:
    """Return the filter. It counts beside that of the cell, which kills calls of another architecture."""
    numbers = NUMBERS[machine]
    return b"".join(
        INSTRUCTION.pack(*instruction)
        for instruction in (
            (LOAD, 0, 0, NUMBER_OFFSET),
            (JUMP_IF_EQUAL, 6, 0, numbers["execve"]),
            (JUMP_IF_EQUAL, 5, 0, numbers["execveat"]),
            (JUMP_IF_EQUAL, 0, 5, linux.SYS_SECCOMP[machine]),
            (LOAD, 0, 0, FLAGS_OFFSET),
            (AND, 0, 0, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER),
            (JUMP_IF_EQUAL, 2, 0, 0),
            (RETURN, 0, 0, FAIL | errno.EBUSY),  # as the kernel answers while there is a listener
            (RETURN, 0, 0, ASK),
            (RETURN, 0, 0, ALLOW),
        )
    )


def execute(path: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program that starts no others; raises `OSError` if that fails.

    Args:
        path: Its absolute path.
        words: Its name and its arguments.
        environment: Its variables.
    """
    try:
        asked = linux.ask_about_system_calls(program(os.uname().machine))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise OSError(
            error.errno,
            "the container answers system calls itself, so programs cannot be refused to another one",
        ) from error
    threading.Thread(target=_answer, args=(asked,), daemon=True).start()
    variables = [f"{name}={value}" for name, value in environment.items()]
    # `os.execve` keeps the other thread from running.
    _libc.execve(os.fsencode(path), _strings(words), _strings(variables))
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _answer(asked: int) -> None:
    while True:
        linux.let_through(asked)


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
