"""Tools whose calls share a cell: what one of them does to the cell, and what the next one finds."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal

from toolcell import tool


def above() -> list[int]:
    """The processes above this one in its cell, the nearest first; `baseline` shows the first one only."""
    found = [os.getppid()]
    with contextlib.suppress(PermissionError):
        while found[-1] > 1:
            with open(f"/proc/{found[-1]}/stat") as file:
                found.append(int(file.read().rpartition(")")[2].split()[1]))
    return [pid for pid in found if pid]


@tool(isolation="call")
def limit_others() -> str:
    """Take from the template, the guard and init what the next call needs of them."""
    signal.alarm(30)
    came: set[str] = set()
    for pid in above():
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4))
            came.add("done")
        except OSError as error:
            came.add(errno.errorcode[error.errno or 0])
    return " ".join(sorted(came))


@tool(isolation="call")
def work() -> str:
    """What an honest tool does."""
    signal.alarm(30)
    os.makedirs("honest/work", exist_ok=True)
    with open("honest/work/file", "w") as file:
        file.write("honest")
    os.rename("honest/work/file", "honest/file")
    return "worked"
