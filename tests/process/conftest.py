"""A real daemon on a socket of its own, and a project directory for tools."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from tests.pace import SLOWNESS
from tests.process import delegation

from toolcell.client import Session, connect
from toolcell.client._operator import Operator, operate
from toolcell.client.daemon import Running
from toolcell_proto.v1 import operator_pb2, toolcell_pb2
from toolcelld.blanks import READY_MAX

R = TypeVar("R", bound=Message)

START_SECONDS_MAX = 20 * SLOWNESS
"""Half a second here; other tests may have the processors."""
SETTLE_SECONDS_MAX = 30.0 * SLOWNESS
"""For what ends on its own after the last event: a warm worker that retires, a zygote that is replaced after a pause."""
THREADS_MAX = 40
"""asyncio's pool for blocking calls has at most six threads on two processors, gRPC some for each processor."""


@dataclass(frozen=True, slots=True)
class DaemonWorld:
    """What a daemon holds when nobody wants anything of it, as the kernel counts it."""

    children: int
    descriptors: int
    files: frozenset[str]
    kinds: Counter[str]

    @classmethod
    def of(cls, daemon: RunningDaemon) -> DaemonWorld:
        with open(f"/proc/{daemon.pid}/task/{daemon.pid}/children") as children:
            below = len(children.read().split())
        run = Path(daemon.socket).parent
        # Outputs that the index knows may stay; `files_left` looks at them when the daemon has ended.
        state = (path for path in daemon.state.rglob("*") if path.parent.name != "outputs")
        files = frozenset(map(str, [*run.rglob("*"), *state]))
        return cls(below, open_descriptors(daemon.pid), files, kinds_of_descriptors(daemon.pid))

    def new_since(self, before: DaemonWorld) -> list[str]:
        """One line for each thing that was not there before."""
        new = [f"file {path}" for path in sorted(self.files - before.files)]
        if self.children > before.children:
            new.append(f"{self.children - before.children} processes")
        if self.descriptors > before.descriptors:
            kinds = ", ".join((self.kinds - before.kinds).elements()) or "of kinds that are not ours to see"
            new.append(f"{self.descriptors - before.descriptors} descriptors: {kinds}")
        return new


def open_descriptors(pid: int) -> int:
    """How many descriptors a process has open; its list is for its tracers, the count is for everybody."""
    count = os.stat(f"/proc/{pid}/fd").st_size  # since Linux 6.2
    try:
        return count or len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return 0  # an older kernel, and no tracer: the count is nobody's to know


def kinds_of_descriptors(pid: int) -> Counter[str]:
    """What they are, without the numbers of sockets and pipes; nothing for who may not trace the process."""
    kinds: Counter[str] = Counter()
    with suppress(PermissionError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                kinds[os.readlink(f"/proc/{pid}/fd/{name}").split(":[")[0]] += 1
    return kinds


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


ROOMY = """
trust = "all"

[defaults]
sandbox = "roomy"

[profile.roomy]
base = "auto"
writable = ["{directory}"]
"""
"""What tools of tests need beyond the default: to leave marks where the test looks for them."""


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
        self.config.write_text(ROOMY.format(directory=directory))
        self.environment: dict[str, str] = {}
        """Beside the few variables that every daemon of a test has."""
        self.through: list[str] = []
        """A program, with its arguments, that becomes the daemon."""
        self.group: Path | None = None
        """Its control group, where the tests were handed one to make it in."""
        self.process: subprocess.Popen[bytes] | None = None
        self.before: DaemonWorld | None = None

    def start(self, *options: str) -> None:
        """Start it and wait until it says that it serves, as it says to systemd."""
        notifications = str(self.directory / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self.log.open("ab") as log:
            manager.bind(notifications)
            manager.settimeout(START_SECONDS_MAX)
            program = "toolcelld" if SLOWNESS == 1 else "tests.process.patient"
            command = [sys.executable, "-m", program, "--socket", self.socket, "--state", str(self.state)]
            self.process = subprocess.Popen(
                [*self._through(), *command, "--config", str(self.config), "--drain", "0", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.directory),
                    "LC_ALL": "C.UTF-8",
                    "NOTIFY_SOCKET": notifications,
                    "GUEST_SLOWNESS": str(SLOWNESS),
                    **self.environment,
                },
            )
            try:
                assert b"READY=1" in manager.recv(4096)
            except TimeoutError:
                pytest.fail(f"the daemon does not start:\n{self.log.read_text()}")
        Path(notifications).unlink()
        self.before = self._warmed_up()

    def _through(self) -> list[str]:
        if self.through or (base := delegation.base()) is None:
            return self.through
        self.group = delegation.make(base)
        return delegation.inside(self.group)

    def _warmed_up(self) -> DaemonWorld:
        """Have it do everything once, so that what it opens for good is open, and look at it then."""
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            tools = Path(directory) / ".toolcell" / "tools"
            tools.mkdir(parents=True)
            (tools / "warm.py").write_text("from toolcell import tool\n\n@tool\ndef warm() -> None: ...\n")
            request = toolcell_pb2.ListToolsRequest(directory=directory)
            found = self.ask("ToolCell/ListTools", request, toolcell_pb2.ListToolsResponse)
        assert [tool.name for tool in found.catalog.tools] == ["warm"], found.text
        return self.at_rest()

    def _blanks(self) -> int:
        """How many cells wait when all have been built: those in namespaces of their own, where there are such, and others."""
        found = self.ask(
            "Operator/Doctor", operator_pb2.DoctorRequest(), operator_pb2.DoctorResponse
        ).findings
        strict = any(one.name == "strict" and one.state != "missing" for one in found)
        return READY_MAX * (2 if strict else 1)

    def at_rest(self) -> DaemonWorld:
        """Its world once nobody wants anything of it, warm workers included; fails if that never comes."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        self.ask(
            "Operator/RestartWorkers",
            operator_pb2.RestartWorkersRequest(),
            operator_pb2.RestartWorkersResponse,
        )
        while True:
            status = self.status()
            # With its blanks built it stays as it is; with one half built it has a descriptor less.
            quiet = not (status.sessions or status.calls or status.workers)
            if quiet and status.blanks >= self._blanks():
                break
            if time.monotonic() > deadline:
                log = self.log.read_text()[-4000:]
                pytest.fail(f"the daemon does not come to rest: {status}\n{log}")
            time.sleep(0.01)  # it has no word for "everybody is gone"
        while True:  # the connection that asked is closed last
            gc.collect()  # a client of the test's own in a cycle, as an expected exception makes one, keeps its connection
            world = DaemonWorld.of(self)
            if self.before is None or not (left := world.new_since(self.before)):
                return world
            if time.monotonic() > deadline:
                pytest.fail("left behind in the daemon:\n  " + "\n  ".join(left))
            time.sleep(0.01)

    def check(self) -> None:
        """Fail unless it serves still, and its world is as before."""
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon died:\n{self.log.read_text()}"
        assert threads(self.pid) <= THREADS_MAX
        self.at_rest()
        assert "Traceback" not in self.log.read_text(), self.log.read_text()

    def ask(self, method: str, request: Message, response: type[R]) -> R:
        """One answer to an operator, without a loop: a fixture has none."""
        token = (Path(self.socket).parent / "operator.token").read_text()
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            call = channel.unary_unary(
                f"/toolcell.v1.{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
            return call(request, metadata=(("authorization", f"Bearer {token}"),), timeout=START_SECONDS_MAX)

    def reload(self) -> None:
        """Have it read its configuration again."""
        self.ask("Operator/Reload", operator_pb2.ReloadRequest(), operator_pb2.ReloadResponse)

    def status(self) -> operator_pb2.GetStatusResponse:
        """How it is, by its own account."""
        return self.ask("Operator/GetStatus", operator_pb2.GetStatusRequest(), operator_pb2.GetStatusResponse)

    def operate(self) -> AbstractAsyncContextManager[Operator]:
        """Both services, with the operator's token."""
        return operate(Running(self.socket))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it is gone, by whoever's wish."""
        assert self.process is not None
        status = self.process.wait(START_SECONDS_MAX)
        self.process = None
        if self.group is not None:
            left, self.group = delegation.remove(self.group), None
            assert status != 0 or not left, f"left behind by a daemon that ended well: {left}"
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

    def describe(self) -> None:
        """Have every file of the project described, as a session waits two seconds for that and not longer."""
        request = toolcell_pb2.ListToolsRequest(directory=str(self.project))
        deadline = time.monotonic() + START_SECONDS_MAX
        files = {path.stem for path in (self.project / ".toolcell" / "tools").glob("*.py")}
        found: set[str] = set()
        while not files <= found:
            assert time.monotonic() < deadline, f"never described: {files - found}"
            listed = self.ask("ToolCell/ListTools", request, toolcell_pb2.ListToolsResponse).catalog
            found = {Path(tool.path).stem for tool in listed.tools}

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
                try:
                    daemon.check()
                finally:
                    assert daemon.stop() == 0


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    """A daemon that serves."""
    daemon = make_daemon()
    daemon.start()
    return daemon
