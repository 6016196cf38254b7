"""The inspector's own process: confines itself, then answers one question after the other until its socket is closed.

Inspectors are forked from a template, which has imported what they need and reads nothing that a project ships: to start
an interpreter takes a hundred times as long, and what a project ships decides how many are needed. The template is run as
`python -I __main__.py ROOT…`, with its socket as standard input, and ends with the daemon, as inspectors end with it.
"""

from __future__ import annotations

import codecs
import gc
import importlib
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Final, NoReturn

PROCESSOR_SECONDS_MAX: Final = 1.0
"""For one answer; then the kernel ends the process by SIGPROF."""
MEMORY_BYTES_MAX: Final = 512 * 2**20
"""Of addresses; an index of git of 16 MiB takes a tenth of it."""
READ_BYTES_MAX: Final = 2**20
CALLS: Final = (
    "brk", "exit", "exit_group", "futex", "madvise", "mmap", "mprotect", "mremap", "munmap", "read", "rt_sigreturn",
    "setitimer", "write",
)  # fmt: skip
"""All that an interpreter calls that computes, reads and writes."""
MODULES: Final = ("resource", "toolcelld.inspector.formats", "toolcelld.sandbox.system_calls.seccomp")
"""What inspectors need."""
ENCODINGS: Final = ("utf-8-sig", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le")
"""Of JSON; the interpreter imports each when it decodes the first text in it."""


def main() -> NoReturn:
    """Fork inspectors until the daemon goes; exits the process."""
    from toolcelld import titles
    from toolcelld.inspector.wire import PID

    for module in MODULES:
        importlib.import_module(module)
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    daemon, template = socket.socket(fileno=0), os.getpid()
    titles.set_title("inspector")
    gc.freeze()
    while True:
        asked, ends, _, _ = socket.recv_fds(daemon, PID.size, 1)
        if not asked:
            os._exit(0)
        if not ends:
            with suppress(ChildProcessError):
                os.waitpid(PID.unpack(asked)[0], 0)
            continue
        try:
            forked = os.fork()
        except OSError:
            forked = -1  # the daemon reads the end of the socket
        if not forked:
            _be_inspector(ends[0], template)
        os.close(ends[0])


def _be_inspector(end: int, template: int) -> NoReturn:
    from toolcelld import linux
    from toolcelld.inspector.wire import CONFINED, PID, UNCONFINED

    status = 1
    try:
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() == template:
            os.dup2(end, 0)
            os.dup2(end, 1)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            _send(PID.pack(os.getpid()))
            _send(CONFINED if _confine() else UNCONFINED)
            _answer()
        status = 0
    finally:
        os._exit(status)


def _answer() -> None:
    """Answer until the daemon goes."""
    from toolcelld.inspector.formats import FORMATS
    from toolcelld.inspector.wire import ANSWER, MISTAKE, QUESTION, VALUE

    while head := _received(QUESTION.size):
        name, size = QUESTION.unpack(head)
        raw = _received(size)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS_MAX)
        try:
            kind, answer = VALUE, json.dumps(FORMATS[name.rstrip(b"\0").decode()](raw)).encode()
        except RecursionError:
            kind, answer = MISTAKE, b"is nested too deeply"
        except MemoryError:
            kind, answer = MISTAKE, b"needs too much memory to read"
        except ValueError as error:
            kind, answer = MISTAKE, str(error).encode(errors="replace")
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(ANSWER.pack(kind, len(answer)) + answer)


def _confine() -> bool:
    """Leave the process its memory, its clock, and its standard input and output; False if the kernel takes no filter."""
    import resource

    from toolcelld import linux
    from toolcelld.sandbox.system_calls.seccomp import only

    linux.set_dumpable(False)
    linux.drop_bounding_set()
    linux.drop_capabilities()
    linux.no_new_privileges()
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(limit, (most, most))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        linux.filter_system_calls(only(CALLS, os.uname().machine))
    except OSError:
        return False
    return True


def _received(size: int) -> bytes:
    """Return exactly so many bytes; end the process where the daemon has gone."""
    content = bytearray()
    while len(content) < size:
        if not (part := os.read(0, min(size - len(content), READ_BYTES_MAX))):
            os._exit(0)
        content += part
    return bytes(content)


def _send(content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:]
    main()
