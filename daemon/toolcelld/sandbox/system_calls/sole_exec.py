"""The one program that a cell without programs executes: the engine of its worker.

A filter that refuses programs has to be loaded before the engine is executed, because an engine cannot load one. So it
has the caller of `execve` wait until a listener answers (seccomp_unotify(2)). The listener is a descriptor of this process,
where a thread lets each call go on. The call that succeeds ends this thread and closes the descriptor, before the first
instruction of the engine; a filter without a listener lets nothing through any more, for all processes that it holds.
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

_libc: Final = ctypes.CDLL(None, use_errno=True)


def program(machine: str) -> bytes:
    """Return the filter. It counts beside that of the cell, which kills calls of another architecture."""
    numbers = NUMBERS[machine]
    return b"".join(
        INSTRUCTION.pack(*instruction)
        for instruction in (
            (LOAD, 0, 0, NUMBER_OFFSET),
            (JUMP_IF_EQUAL, 1, 0, numbers["execve"]),
            (JUMP_IF_EQUAL, 0, 1, numbers["execveat"]),
            (RETURN, 0, 0, ASK),
            (RETURN, 0, 0, ALLOW),
        )
    )


def execute(engine: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by an engine that starts no programs; raises `OSError` if that fails.

    Args:
        engine: Its absolute path.
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
            "the container answers system calls itself, so programs cannot be refused to an engine",
        ) from error
    threading.Thread(target=_answer, args=(asked,), daemon=True).start()
    variables = [f"{name}={value}" for name, value in environment.items()]
    # `os.execve` keeps the other thread from running.
    _libc.execve(os.fsencode(engine), _strings(words), _strings(variables))
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _answer(asked: int) -> None:
    while True:
        linux.let_through(asked)


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
