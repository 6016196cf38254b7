"""Leaves the process tree of the client that starts the daemon (`--detach`).

Agents end an MCP server together with all its descendants, which they find by parent process id. A daemon that such
a server has started serves other agents too, so it must be no descendant of it:

    client
      starter      the process that the client spawned; waits for the start, exits with its status
        (middle)   setsid(), fork(), exit
    init
      daemon       reparented; in the session and process group of `middle`, without being their leader

The starter learns the status through a pipe, because it is not the parent: 0 when the daemon serves or when another
one does, the exit status when it ends before, nothing when it is killed. If the starter is ended meanwhile, the start
goes on.

Standard output and error stay what they were, the log that the client opened. Limits: where an ancestor of the client
is a child subreaper (prctl(2)), the daemon becomes its child instead of init's; `systemd --user` is one, and does not
end its children. A service manager that ends a whole control group ends the daemon with it; install the daemon's own
unit there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

EXIT_KILLED: Final = 70  # EX_SOFTWARE of <sysexits.h>


@contextmanager
def detached() -> Generator[Callable[[], None]]:
    """Run the block in a process outside the caller's process tree; its argument is to be called when it serves.

    The calling process does not return: it exits when the block has said that it serves, or has ended. Call it before
    there are threads and before anything is opened that the block needs: descriptors other than 0, 1 and 2 are closed.
    """
    report = _leave()
    serving = False

    def tell(status: int) -> None:
        with suppress(BrokenPipeError):  # the starter was ended
            os.write(report, b"%d" % status)

    def on_serving() -> None:
        nonlocal serving
        serving = True
        tell(0)
        os.close(report)

    status = 1  # of Python for an exception
    try:
        yield on_serving
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        if not serving:
            # Closed by the exit, so that the starter goes last: a traceback is in the log by then
            tell(status)


def _leave() -> int:
    """Return in the new process, with the descriptor that takes the status."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # what a client leaked would keep its pipes open
    status, report = os.pipe()
    middle = os.fork()
    if middle:
        os.close(report)
        os.waitpid(middle, 0)
        _exit_with(status)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(status)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return report


def _exit_with(status: int) -> NoReturn:
    """Exit as the daemon's start ends."""
    with open(status, "rb") as pipe:
        written = pipe.read()
    if not written:
        print("toolcelld: The daemon was killed while it started.", file=sys.stderr, flush=True)
    os._exit(int(written) if written else EXIT_KILLED)
