"""The daemon's end of the inspector: asks it, and replaces it when it is late or gone.

A thread takes an idle process, or has the template fork one, and asks it one thing; so threads that ask at the same time do
not wait for each other. One process is kept for the next question, and answers are kept by the content that was asked
about: what is read for a session was mostly read before, also what the event loop asks for. One that takes long loses
priority, so that many of them slow down neither the quick ones nor cells.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

import toolcell
from toolcelld.inspector.wire import ANSWER, CONFINED, FORK, MISTAKE, PID, QUESTION, VALUE

ENTRY: Final = Path(__file__).with_name("__main__.py")
ROOTS: Final = tuple(sorted({str(Path(__file__).parents[2]), str(Path(toolcell.__file__).parents[1])}))
ANSWER_SECONDS_MAX: Final = 10.0
"""The kernel ends an inspector after a second of processor time; on a loaded machine that takes longer."""
LEAVING_SECONDS_MAX: Final = 2.0
"""For a template to read that the daemon goes, which takes milliseconds once it has imported."""
PROMPT_SECONDS: Final = 0.01
"""Of processor time that an inspector has the daemon's priority for, for each question; most take a millisecond or two."""
BEHIND: Final = 10
"""How much lower its priority is afterwards: eight of them together have less of a processor than a cell."""
PROCESS_CLOCK: Final = 2
"""In the number of a clock that counts the processor time of another process, as clock_getcpuclockid(3) makes it."""
ANSWER_BYTES_MAX: Final = 4 * 2**20
MESSAGE_CHARACTERS_MAX: Final = 1000
KEPT_MAX: Final = 2000
KEPT_BYTES_MAX: Final = 4 * ANSWER_BYTES_MAX
"""Of all answers together. The event loop asks about what a thread asked about just before, so the latest are kept."""
LATE: Final = b"takes more than a second to read"
TOO_MUCH: Final = b"says too much"


class InspectionError(ValueError):
    """A file cannot be used; the text continues a sentence that begins with the file's name."""


class _Template:
    """The process that inspectors are forked from. It was started, and may still be importing."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_SECONDS_MAX)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", str(ENTRY), *ROOTS],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={"PATH": os.defpath, "LC_CTYPE": "C.UTF-8"},
                    cwd="/",
                    process_group=0,  # for ^C; the kernel may share processors out to sessions before priorities
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it can fork no more."""
        return self._process.poll() is not None

    def fork(self, end: socket.socket) -> None:
        """Fork an inspector with its end of a socket, when everything is imported. Raises `OSError`."""
        socket.send_fds(self._socket, [FORK], [end.fileno()])

    def end(self, pid: int) -> None:
        """End an inspector, which is not reaped before. One whose template has ended is ended by the kernel."""
        try:
            inspector = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if not self.has_ended:  # so the number was the inspector's when it was opened
                signal.pidfd_send_signal(inspector, signal.SIGKILL)
                self._socket.send(PID.pack(pid))
        except OSError:
            pass  # it has ended, and another process reaps them
        finally:
            os.close(inspector)

    def close(self) -> None:
        """End it when it has reaped the inspectors that were ended, and reap it; the kernel ends the others with it."""
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVING_SECONDS_MAX)
        self._process.kill()
        self._process.wait()


class _Process:
    """An inspector that is being forked."""

    def __init__(self, template: _Template) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS_MAX)
        try:
            with theirs:
                template.fork(theirs)
        except BaseException:
            ours.close()
            raise
        self._template = template
        self._socket = ours
        self.pid = 0
        self._ready = b""
        self.is_behind = False

    def wait(self) -> bool:
        """Wait until it is there and has confined itself; return whether a filter holds it. Raises `OSError`."""
        self._meet()
        self._ready = self._ready or self._received(len(CONFINED))
        return self._ready == CONFINED

    def _meet(self) -> None:
        if not self.pid:
            (self.pid,) = PID.unpack(self._received(PID.size))

    def ask(self, name: str, raw: bytes) -> tuple[int, bytes]:
        """Return the kind of an answer, and the answer. Raises `OSError` where there is none; end it then."""
        self._socket.sendall(QUESTION.pack(name.encode(), len(raw)))
        self._socket.sendall(raw)
        with suppress(OSError):  # it has ended
            self._put_behind_if_late()
        kind, size = ANSWER.unpack(self._received(ANSWER.size))
        if size > ANSWER_BYTES_MAX:
            raise ConnectionAbortedError(errno.ECONNABORTED, "an answer that is too long")
        return kind, self._received(size)

    def _put_behind_if_late(self) -> None:
        """Wait for an answer to begin; lower the priority of a process that works on it for long."""
        pid = self.pid
        clock = ~pid << 3 | PROCESS_CLOCK
        late = time.clock_gettime(clock) + PROMPT_SECONDS
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not poll.poll(PROMPT_SECONDS * 1000) and time.monotonic() < deadline:
            if time.clock_gettime(clock) >= late:
                self.is_behind = True  # it may not be raised again
                os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + BEHIND)
                return

    def _received(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            if not (part := self._socket.recv(size - len(content))):
                raise ConnectionResetError(errno.ECONNRESET, "it has ended")
            content += part
        return bytes(content)

    def close(self) -> None:
        """End it at once and have it reaped."""
        with suppress(OSError):
            self._meet()
        self._socket.close()
        if self.pid:
            self._template.end(self.pid)


class _Kept:
    """The latest answers, as many as there is room for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, bytes], tuple[int, bytes]] = OrderedDict()  # the latest last
        self._bytes = 0

    def get(self, key: tuple[str, bytes]) -> tuple[int, bytes] | None:
        """Return the kind of an answer, and the answer; None if it is not kept."""
        with self._lock:
            if (found := self._answers.get(key)) is not None:
                self._answers.move_to_end(key)
            return found

    def put(self, key: tuple[str, bytes], found: tuple[int, bytes]) -> None:
        """Keep an answer instead of those that were used longest ago."""
        with self._lock:
            if key not in self._answers:
                self._bytes += len(found[1])
            self._answers[key] = found
            while len(self._answers) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX:
                _, (_, answer) = self._answers.popitem(last=False)
                self._bytes -= len(answer)


_lock: Final = threading.Lock()
_templates: Final[list[_Template]] = []  # one at most
_idle: Final[list[_Process]] = []  # the same
_kept: Final = _Kept()


def start() -> None:
    """Start an inspector ahead of the first question, unless one is there or none can be started."""
    with suppress(OSError):
        _give_back(_taken())


def confinement() -> tuple[bool, str]:
    """Return whether inspectors are confined by a system-call filter, and what is missing where they are not. Blocks."""
    process = None
    try:
        process = _taken()
        confined = process.wait()
    except OSError as error:
        if process is not None:
            process.close()
        return False, f"no process can be started that reads the files of projects: {error}"
    _give_back(process)
    return confined, "" if confined else "the kernel takes no system-call filter"


def ask(name: str, raw: bytes) -> bytes:
    """Return the answer of an inspector, in JSON. Blocks, for at most `ANSWER_SECONDS_MAX`.

    Args:
        name: Of a format in `formats`.
        raw: The content of a file; the caller bounds its size.

    Raises:
        InspectionError: There is none, for a reason in the file.
    """
    key = (name, hashlib.blake2b(raw, digest_size=20).digest())
    kind, answer = _kept.get(key) or _answer(key, raw)
    if kind == VALUE:
        return answer
    raise InspectionError(answer.decode(errors="replace")[:MESSAGE_CHARACTERS_MAX])


def _answer(key: tuple[str, bytes], raw: bytes) -> tuple[int, bytes]:
    process = None
    try:
        process = _taken()
        process.wait()
    except OSError as error:
        if process is not None:
            process.close()
        raise InspectionError(f"cannot be read: no process can be started that reads it: {error}") from error
    try:
        found = process.ask(key[0], raw)
    except ConnectionAbortedError:
        process.close()
        found = MISTAKE, TOO_MUCH
    except ConnectionError:  # the kernel ended it, as it would the next time
        process.close()
        found = MISTAKE, LATE
    except OSError as error:
        process.close()
        raise InspectionError(LATE.decode()) from error
    except BaseException:
        process.close()
        raise
    else:
        _give_back(process)
    _kept.put(key, found)
    return found


def _taken() -> _Process:
    with _lock:
        if _idle:
            return _idle.pop()
        if _templates and _templates[0].has_ended:
            _templates.pop().close()
        if not _templates:
            _templates.append(_Template())
        return _Process(_templates[0])


def _give_back(process: _Process) -> None:
    with _lock:
        if not _idle and not process.is_behind:
            _idle.append(process)
            return
    process.close()


@atexit.register
def _close() -> None:
    with _lock:
        while _idle:
            _idle.pop().close()
        while _templates:
            _templates.pop().close()
