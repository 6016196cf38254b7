"""A real daemon on a socket of its own, and a project directory for tools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from toolcell.client import Session, connect

READY = "serves"


class RunningDaemon:
    """A daemon that a test has for itself; ended with it, and seen to leave nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "run" / "daemon.sock")
        self.state = directory / "state"
        self.config = directory / "config.toml"
        self.log = directory / "daemon.log"
        self.project = directory / "project"
        (self.project / ".toolcell" / "tools").mkdir(parents=True)
        self.config.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it and wait until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "toolcelld", "--socket", self.socket, "--state", str(self.state),
                    "--config", str(self.config), "--drain", "0", *options,
                ],  # fmt: skip
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory), "LC_ALL": "C.UTF-8"},
            )
        assert self.process.stderr is not None
        told = b""
        while READY.encode() not in told:
            line = self.process.stderr.readline()
            assert line, told.decode()
            told += line
        # From here on nobody reads the pipe; the log of a test is small.

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(20)
        assert self.process.stderr is not None
        self.log.write_bytes(self.process.stderr.read())
        self.process.stderr.close()
        self.process = None
        return status

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def tool(self, name: str, source: str) -> Path:
        """Write a tool file into the project."""
        path = self.project / ".toolcell" / "tools" / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        return path

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Session]:
        """A session in the project."""
        options.setdefault("directory", self.project)
        return connect(self.socket, daemon="running", **options)


@pytest.fixture
def make_daemon() -> Iterator[Callable[[], RunningDaemon]]:
    """Daemons in short directories: a socket's path has at most some hundred bytes."""
    made: list[RunningDaemon] = []
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:

        def make() -> RunningDaemon:
            path = Path(directory) / str(len(made))
            path.mkdir(mode=0o700)
            made.append(RunningDaemon(path))
            return made[-1]

        yield make
        for daemon in made:
            if daemon.process is not None:
                assert daemon.stop() == 0


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    """A daemon that serves."""
    daemon = make_daemon()
    daemon.start()
    return daemon
