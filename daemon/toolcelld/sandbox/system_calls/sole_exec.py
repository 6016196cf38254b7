"""The one program that a cell without programs executes: the engine or the interpreter of its worker.

A filter that refuses programs has to be loaded before it is executed: an engine cannot load one, and an interpreter may
be the project's. So it has the caller of `execve` wait until a listener answers (seccomp_unotify(2)). The listener is a descriptor of this process,
where a thread lets each call go on. The call that succeeds ends this thread and closes the descriptor, before the first
instruction of the program; a filter without a listener lets nothing through any more, for all processes that it holds.

The filter also refuses to load one with a listener: a tool would answer for its own programs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp

LAYER: Final = "no programs"

_libc: Final = ctypes.CDLL(None, use_errno=True)


def program(machine: str) -> bytes:
    return seccomp.asking(machine, ("execve", "execveat"))


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
