"""A real daemon on a socket of its own, and a project directory for tools."""

from __future__ import annotations

import os
import signal
import socket
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

START_SECONDS_MAX = 20
"""Half a second here; other tests may have the processors."""


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
        """Start it and wait until it says that it serves, as it says to systemd."""
        notifications = str(self.directory / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self.log.open("ab") as log:
            manager.bind(notifications)
            manager.settimeout(START_SECONDS_MAX)
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "toolcelld", "--socket", self.socket, "--state", str(self.state),
                    "--config", str(self.config), "--drain", "0", *options,
                ],  # fmt: skip
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.directory),
                    "LC_ALL": "C.UTF-8",
                    "NOTIFY_SOCKET": notifications,
                },
            )
            try:
                assert b"READY=1" in manager.recv(4096)
            except TimeoutError:
                pytest.fail(f"the daemon does not start:\n{self.log.read_text()}")
        Path(notifications).unlink()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(START_SECONDS_MAX)
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
