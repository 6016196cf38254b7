"""Runs the command in processes that are forked from one that has loaded it, for tests of what a command does.

A Python that starts and imports the command takes 0.2 s of processor time, a fork of one that has done so 0.02 s, and
the tests run some hundred commands. The process that runs is the command from `main` to its exit code, with its own
arguments, environment, directory, standard streams and signals, and a session of its own on a terminal. What it loads,
how it starts, and what it does under a signal is tested with processes of their own.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NoReturn

__all__ = ["ForkedCommand", "ForkedCommands"]

REQUEST_BYTES_MAX: Final = 1 << 18
"""Of one packet of a socket: the words and the environment."""
LOADED: Final = ("toolcell.cli", "toolcell.client", "toolcell_proto.v1")
"""Packages that a command takes modules of when it runs; its children find all of them loaded."""


class ForkedCommand:
    """A command that runs, with what a test needs of `subprocess.Popen`."""

    def __init__(self, answer: int) -> None:
        """`answer` is where its pid comes first, and then its exit code; it is closed with the command."""
        self._answered = open(answer, "rb", buffering=0)  # noqa: SIM115  # until it has ended
        self.pid = int(self._answered.readline())
        self.returncode: int | None = None

    def wait(self, seconds_max: float) -> int:
        """Wait until it has ended; return its exit code. Raises `TimeoutError`."""
        if self.returncode is None:
            ready, _, _ = select.select([self._answered], [], [], seconds_max)
            if not ready:
                raise TimeoutError(f"process {self.pid} has not ended after {seconds_max} s")
            with self._answered:
                self.returncode = int(self._answered.readline())
        return self.returncode

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkedCommands:
    """The process that forks."""

    running: ClassVar[ForkedCommands | None] = None
    """The one of the tests that run now."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours

    @classmethod
    @contextmanager
    def started(cls, environment: Mapping[str, str]) -> Generator[None]:
        """Let it run. What an interpreter reads of the environment at its start, such as the locale, is in `environment`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            env=dict(environment),
            stdin=subprocess.PIPE,  # pipes, as those of the commands: its files are made for what is there now
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        with process, ours:  # it ends when the socket is closed
            cls.running = cls(ours)
            yield
            cls.running = None

    def run(
        self,
        words: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        stdin: bytes,
        seconds_max: float,
        program: str = "",
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end, without a terminal; return its exit code and what it printed. Several may run at once.

        `program` is what is run in place of the command's `main`.

        Raises:
            TimeoutError: It did not end in time, and was killed.
        """
        (read, take), (out, give_out), (err, give_err) = (os.pipe() for _ in range(3))
        streams = [read, give_out, give_err]
        try:
            command = self._start(streams, words, directory, environment, program)
        finally:
            for end in streams:
                os.close(end)
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write, take, stdin)
            printed = [threads.submit(_read, end) for end in (out, err)]
            try:
                texts = [each.result(seconds_max) for each in printed]
            except BaseException:
                command.kill()  # unless it has ended, and what it started has its output
                raise
            finally:
                code = command.wait(seconds_max)
        return code, texts[0], texts[1]

    def start_on(
        self, streams: Sequence[int], words: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> ForkedCommand:
        """Start a command in a session of its own on the terminal that its output is, and return at once.

        `streams` are its input, output and errors, which stay open here.
        """
        return self._start(streams, words, directory, environment, on_terminal=True)

    def _start(
        self,
        streams: Sequence[int],
        words: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        program: str = "",
        *,
        on_terminal: bool = False,
    ) -> ForkedCommand:
        request = [list(words), str(directory), dict(environment), program, on_terminal]
        answer, answers = os.pipe()
        try:
            socket.send_fds(self._ours, [json.dumps(request).encode()], [*streams, answers])
        finally:
            os.close(answers)
        return ForkedCommand(answer)


def _write(end: int, data: bytes) -> None:
    with open(end, "wb", buffering=0) as file, suppress(BrokenPipeError):  # it did not want all of it
        file.write(data)


def _read(end: int) -> bytes:
    with open(end, "rb") as file:
        return file.read()


def _serve(requests: socket.socket) -> None:
    """Fork a command for each request; its pid is the first line of the answer, its exit code the second."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd: the pid, and where the answer goes
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                pid, answer = running.pop(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with suppress(BrokenPipeError):  # who asked has waited long enough
                    os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(answer)
                continue
            request, received, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
            if not request:
                return
            *streams, answer = received
            pid = os.fork()
            if pid == 0:
                requests.close()
                for number in (answer, *running, *(each for _, each in running.values())):
                    os.close(number)
                _become(streams, *json.loads(request))
            for stream in streams:
                os.close(stream)
            os.write(answer, b"%d\n" % pid)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, answer
            poll.register(pidfd, select.POLLIN)


def _become(
    streams: list[int],
    words: list[str],
    directory: str,
    environment: dict[str, str],
    program: str,
    on_terminal: bool,
) -> NoReturn:
    import time

    from toolcell import cli

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if on_terminal:
        os.setsid()
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        for file in (sys.stdout, sys.stderr):
            file.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as it is made for a terminal
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = [os.path.join(os.path.dirname(cli.__file__), "__main__.py"), *words]
    if program:
        exec(program, {"__name__": "__main__"})
    else:
        cli.main()
    sys.exit()


def _load() -> None:
    import gc
    import importlib
    import pkgutil

    for package in LOADED:
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    gc.freeze()


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
