"""The titles of processes: what `ps`, `htop` and `systemd-cgls` show of them.

The kernel shows the memory that held the arguments of `execve`, so a title is written there and is at most as long. A process
that was forked writes to its own copy. Arguments of tools, results and secrets never stand in a title, as every user of the
machine may read it.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

from toolcelld import linux

PREFIX: Final = "toolcell: "
ENDS: Final = slice(45, 47)
"""`arg_start` and `arg_end` among the fields of /proc/self/stat behind the name; see proc(5)."""


def _find_memory() -> memoryview:
    """Return the memory of the arguments; empty where the kernel does not say where it is."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[ENDS])
        if start:
            return memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B")
    return memoryview(bytearray())


_memory: Final = _find_memory()


def set_title(role: str, of: str = "") -> None:
    """Show this process as `role`, with what it works on.

    Args:
        role: One word, which is the name of the process as well (`ps -o comm`); at most 6 characters of it are shown there.
        of: A file, or a tool and a call; control characters are shown as `?`. Default: nothing.
    """
    linux.set_name(f"toolcell:{role}")
    change_title(role, of)


def change_title(role: str, of: str = "") -> None:
    """Do as `set_title`, but leave the name of the process, so that no system call is needed."""
    title = f"{PREFIX}{role} {of}".rstrip()
    if not title.isprintable():
        title = "".join(character if character.isprintable() else "?" for character in title)
    if size := len(_memory):
        _memory[:] = title.encode(errors="replace")[: size - 1].ljust(size, b"\0")
