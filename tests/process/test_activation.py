"""A daemon that systemd starts for a connection: what waited is answered, also over a stop and a kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import grpc
import pytest

from toolcell_proto.v1 import operator_pb2
from toolcelld.rpc import backlog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECONDS_MAX: Final = 90
BECOME: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
FIRST_CALLS: Final = 20
T = TypeVar("T")


class Activated:
    """What systemd has of a service: a socket that listens, and a daemon that it starts with it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.run = place / "run"
        self.run.mkdir(0o700)
        self.path = str(self.run / "daemon.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4096)
        self.log = place / "log"
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        words = [
            "-m",
            "toolcelld",
            "--socket",
            self.path,
            "--state",
            str(self.place / "state"),
            "--drain",
            "0",
        ]
        number = self.listener.fileno()
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-c", BECOME, str(number), *words, *options],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.place), "LISTEN_FDS": "1"},
            )
        return self.daemon

    def end(self, number: int) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(number)
        status, self.daemon = self.daemon.wait(SECONDS_MAX), None
        return status

    def waits(self) -> bool:
        """Whether a connection to the path waits for a daemon, as systemd would see it."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path)
            self.listener.setblocking(False)
            try:
                self.listener.accept()[0].close()
            except BlockingIOError:
                return False
        return True


@pytest.fixture
def service() -> Iterator[Activated]:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        service = Activated(Path(directory))
        try:
            yield service
        finally:
            if service.daemon is not None:
                service.daemon.kill()
                service.daemon.wait(SECONDS_MAX)
            service.listener.close()
            print(service.log.read_text())  # shown where a test fails


def ask(path: str, connecting: threading.Barrier | None = None) -> int:
    """Connect as any program does, wait until a server answers, read the token, and ask; the daemon's process."""
    with grpc.insecure_channel(f"unix:{path}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        ready = grpc.channel_ready_future(channel)
        if connecting is not None:
            connecting.wait(SECONDS_MAX)
        ready.result(SECONDS_MAX)
        token = Path(path).with_name("operator.token").read_text()
        status = channel.unary_unary(
            "/toolcell.v1.Operator/GetStatus",
            request_serializer=operator_pb2.GetStatusRequest.SerializeToString,
            response_deserializer=operator_pb2.GetStatusResponse.FromString,
        )
        answer = status(
            operator_pb2.GetStatusRequest(),
            metadata=(("authorization", f"Bearer {token}"),),
            timeout=SECONDS_MAX,
        )
        return answer.pid


def ask_at_once(path: str, start: Callable[[], T]) -> tuple[T, set[int]]:
    """Have twenty clients connect, start what answers them; what that returned, and the processes that answered."""
    connecting = threading.Barrier(FIRST_CALLS + 1)
    with ThreadPoolExecutor(FIRST_CALLS) as clients:
        asked = [clients.submit(ask, path, connecting) for _ in range(FIRST_CALLS)]
        connecting.wait(SECONDS_MAX)
        return start(), {one.result(SECONDS_MAX) for one in asked}


def test_connections_that_waited_are_answered_and_the_next_ones_wait_again(service: Activated) -> None:
    daemon, asked = ask_at_once(service.path, service.start)
    assert asked == {daemon.pid}
    assert not service.waits(), "new connections reach the server itself"
    assert ask(service.path) == daemon.pid
    assert service.end(signal.SIGTERM) == 0
    assert service.waits()
    assert not list(service.run.glob("*.token"))

    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(ask, service.path)
        killed = service.start()
        assert waiting.result(SECONDS_MAX) == killed.pid
    service.end(signal.SIGKILL)
    next_one = service.start()
    with ThreadPoolExecutor(1) as clients:
        assert clients.submit(ask, service.path).result(SECONDS_MAX) == next_one.pid
    assert service.end(signal.SIGTERM) == 0
    assert service.waits()
    assert sorted(path.name for path in service.run.iterdir()) == ["daemon.lock", "daemon.sock"]


def test_a_thousand_connections_that_say_nothing_keep_no_other_from_the_server(service: Activated) -> None:
    with ExitStack() as opened:
        silent = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(1000)]
        for client in silent:
            client.connect(service.path)
        daemon = service.start()
        assert ask(service.path) == daemon.pid
        # What is beyond the bound is closed; with the others the server has begun to speak.
        told = [client.recv(1) for client in silent]
        assert told.count(b"") == len(silent) - backlog.CARRIED_MAX
        assert service.end(signal.SIGTERM) == 0
        assert service.waits()


def test_a_daemon_that_cannot_start_leaves_no_connection_for_which_it_would_be_started_again(
    service: Activated,
) -> None:
    config = service.place / "config.toml"
    config.write_text("[daemon]\nworkesr = 3\n")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(service.path)
        daemon = service.start("--config", str(config))
        client.settimeout(SECONDS_MAX)
        assert client.recv(1) == b""
        assert daemon.wait(SECONDS_MAX) == 78
    service.daemon = None
    assert service.waits()
