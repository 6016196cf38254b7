"""The inspector's own process: confines itself, then answers one question after the other until its socket is closed.

Run as `python -I __main__.py ROOT…`, with the socket as standard input and output. It imports nothing of pydantic,
because it is started while somebody waits.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final

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


def main() -> None:
    """Answer until the daemon goes."""
    from toolcelld.inspector.formats import FORMATS
    from toolcelld.inspector.wire import ANSWER, CONFINED, MISTAKE, QUESTION, UNCONFINED, VALUE

    _send(CONFINED if _confine() else UNCONFINED)
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
