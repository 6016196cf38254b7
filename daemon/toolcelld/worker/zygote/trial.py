"""A cell without a daemon: it loads a sample, runs its tools and ends, and what code it enters is noted.

What the daemon would say is in its sockets before it begins, and what the cell says is read by nobody. Its processes note
in memory that they share. Where the host lets it be no strict cell, another one is tried.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from typing import Final, NoReturn, TypeAlias

import toolcelld
from toolcelld.protocol.frames import encode
from toolcelld.protocol.messages import BecomeMessage, CallContext, CallMessage, LoadMessage, RetireMessage
from toolcelld.sandbox.policy import CellLimits, Enclosure, SandboxPolicy

RunCell: TypeAlias = Callable[[Sequence[int], Enclosure], NoReturn]
"""Runs a cell in a forked process; gets its descriptors, in the order in which a keeper takes them."""

KINDS: Final[Sequence[Enclosure]] = ("strict", "baseline")
SAMPLE: Final = b'''
from toolcell import tool

@tool
def text(text: str, number: float = 1) -> str:
    """Do nothing."""
    return f"{text}{number}"

@tool
def number(text: str = "") -> int:
    """Do nothing."""
    return len(text)
'''
PLACE: Final = os.path.dirname(os.path.abspath(toolcelld.__file__))
"""A directory that the cell may write in, and does not."""
CONTEXT: Final[CallContext] = {
    "session_id": "", "message_id": "", "call_id": "", "agent": "", "agent_name": "", "directory": "", "worktree": "",
}  # fmt: skip
SECONDS_MAX: Final = 5.0
"""A trial takes some hundredths of a second; after this time it is ended, and what it has entered is known."""
ENTERED_MAX: Final = 8192
"""Code that is noted; a cell enters some eight hundred functions."""
WORD: Final = "Q"
WORD_BYTES: Final = 8


class Trial:
    """Runs a cell; the caller can do something else meanwhile.

    Args:
        run: Runs it.
    """

    def __init__(self, run: RunCell) -> None:
        self._run = run
        self._memory = mmap.mmap(-1, WORD_BYTES * (1 + ENTERED_MAX))
        self._words = memoryview(self._memory).cast(WORD)  # how many are noted, and what
        self._kinds = iter(KINDS)
        self._said = contextlib.ExitStack()
        self._begin(next(self._kinds))

    def entered(self) -> Sequence[int]:
        """Wait until it has ended; return the addresses of the code that it has entered, in the order of the first time."""
        while not self._has_succeeded() and (kind := next(self._kinds, None)) is not None:
            self._begin(kind)
        noted = dict.fromkeys(self._words[1 : 1 + self._words[0]])
        self._words.release()
        self._memory.close()
        return list(noted)

    def _begin(self, kind: Enclosure) -> None:
        descriptors = self._said.enter_context(_told(kind))
        self._pid = os.fork()
        if not self._pid:
            try:
                sys.setprofile(self._noting())
                self._run(descriptors, kind)
            finally:
                os._exit(1)

    def _noting(self) -> Callable[[types.FrameType, str, object], None]:
        seen: set[int] = set()  # a forked process has what was seen before
        words = self._words

        def note(frame: types.FrameType, _event: str, _value: object) -> None:
            address = id(frame.f_code)
            if address not in seen and words[0] < ENTERED_MAX:
                seen.add(address)
                words[0] += 1
                words[words[0]] = address

        return note

    def _has_succeeded(self) -> bool:
        """Wait until the cell has ended, at most so long; return whether its keeper could build it."""
        pidfd = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(SECONDS_MAX * 1000):
            os.kill(self._pid, signal.SIGKILL)  # the kernel ends what is below it
        os.close(pidfd)
        self._said.close()
        return os.waitpid(self._pid, 0)[1] == 0


@contextlib.contextmanager
def _told(kind: Enclosure) -> Generator[Sequence[int]]:
    """Make the descriptors of a cell to which all is said; they are closed at the end."""
    become = {
        "directory": PLACE,
        "environment": {"PATH": os.defpath},
        "limits": asdict(CellLimits()),
        "memory_held": False,
        "policy": SandboxPolicy(kind, writable=(PLACE,), guarded=PLACE, names=(".git",)).to_wire(),
        "scratch": "/tmp" if kind == "strict" else "",  # noqa: S108  # of the cell alone
    }
    said = (
        encode(BecomeMessage(), json.dumps(become).encode()),
        encode(LoadMessage(path=f"{PLACE}/sample.py", stem="sample", directory=PLACE), SAMPLE),
        encode(CallMessage(seq=1, tool="sample_text", context=CONTEXT), b'{"text":"a"}'),
        encode(CallMessage(seq=2, tool="sample_number", context=CONTEXT), b'{"text":"a"}'),
        encode(RetireMessage()),
    )
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
        pairs += [socket.socketpair() for _ in range(6)]  # also in place of pipes
        for end in (each for pair in pairs for each in pair):
            stack.enter_context(end)
        life, protocol = pairs[0][0], pairs[1][0]
        life.send(b"go")
        protocol.sendall(b"".join(said))
        yield [theirs.fileno() for _, theirs in pairs[: 7 if kind == "strict" else 6]]
