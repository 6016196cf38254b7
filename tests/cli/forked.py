"""Runs the command in processes that are forked from one that has loaded it, for tests of what a command does.

A Python that starts and imports the command takes 0.2 s of processor time, a fork of one that has done so 0.02 s, and
the tests run some hundred commands. The process that runs is the command from `main` to its exit code, with its own
arguments, environment, directory, standard streams and signals. What it loads, how it starts, and what it does on a
terminal or under a signal is tested with processes of their own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NoReturn

__all__ = ["ForkedCommands"]

REQUEST_BYTES_MAX: Final = 1 << 18
"""Of one packet of a socket: the words and the environment."""
LOADED: Final = ("toolcell.cli", "toolcell.client", "toolcell_proto.v1")
"""Packages that a command takes modules of when it runs; its children find all of them loaded."""


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
        request = json.dumps([list(words), str(directory), dict(environment), program]).encode()
        (read, take), (out, give_out), (err, give_err), (answer, answers) = (os.pipe() for _ in range(4))
        try:
            socket.send_fds(self._ours, [request], [read, give_out, give_err, answers])
        finally:
            for end in (read, give_out, give_err, answers):
                os.close(end)
        with ThreadPoolExecutor(3) as threads, open(answer, "rb") as answered:
            threads.submit(_write, take, stdin)
            printed = [threads.submit(_read, end) for end in (out, err)]
            pid = int(answered.readline())
            try:
                texts = [each.result(seconds_max) for each in printed]
            except BaseException:
                with suppress(ProcessLookupError):  # it has ended, and what it started has its output
                    os.kill(pid, signal.SIGKILL)
                raise
            code = int(answered.readline())
        return code, texts[0], texts[1]


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
    streams: list[int], words: list[str], directory: str, environment: dict[str, str], program: str
) -> NoReturn:
    import time

    from toolcell import cli

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
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
