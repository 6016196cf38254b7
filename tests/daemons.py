"""Real daemons for tests: the one way to start them, and the fixtures that hand them out.

A test asks for `daemon`. It is started once for all tests of a directory (for each file of those of the adapters), as a
start, its warm-up and its end take a second of processor time; each test gets a new project directory, the default
configuration and a daemon without sessions, calls and workers. After each test the daemon must come to that state
again (`settle`); that it has no process, descriptor or file more than after its start is checked after each file of tests (`check`).

A test may stop, kill or restart that daemon: the next test finds it running. A test whose daemon needs another
environment or other options, no history, or two daemons, asks for `make_daemon`.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from tests.process import delegation

from toolcell.client import Session, connect
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import Operator, operate
from toolcell_proto.v1 import operator_pb2, toolcell_pb2
from toolcelld.pool.prefork import READY_MAX

R = TypeVar("R", bound=Message)
STATUS: Final = operator_pb2.GetStatusResponse
RESTARTED: Final = operator_pb2.RestartWorkersResponse

START_SECONDS_MAX = 90
"""Half a second here; other tests may have the processors."""
SETTLE_SECONDS_MAX = 30.0
"""For what ends on its own after the last event: a warm worker that retires, a zygote that is replaced after a pause."""
LOOK_SECONDS = 0.01
LOOK_SECONDS_MAX = 0.04
"""Between two looks at a daemon that comes to rest, at first and later: each takes some milliseconds of processor time."""
STABLE_SECONDS = 0.05
DESCRIBED_SECONDS_MAX = 40
"""How long sessions wait for descriptions when they open and reload; of the product's two seconds, other tests may take all."""
SERVERS_SECONDS_MAX = 400
"""For dozens of servers, which are started one after the other."""
LOGGED_MAX = 4000
"""Characters of a daemon's log that a failed test shows."""
THREADS_MAX = 48
"""asyncio's pool for blocking calls has at most six threads on two processors, gRPC some for each processor and some
more on a loaded machine, and the records have one."""


class Asks(Protocol):
    """Asks a daemon for one answer, as an operator."""

    def __call__(self, method: str, request: Message, response: type[R]) -> R: ...


@dataclass(frozen=True, slots=True)
class DaemonSnapshot:
    """What an idle daemon holds, as the kernel counts it."""

    connections: int
    children: int
    descriptors: int
    files: frozenset[str]
    kinds: Counter[str]

    @classmethod
    def of(cls, daemon: RunningDaemon) -> DaemonSnapshot:
        # First, so that one that is closed by then is not among the descriptors.
        open_now = connections(daemon.pid, daemon.socket)
        with open(f"/proc/{daemon.pid}/task/{daemon.pid}/children") as children:
            below = len(children.read().split())
        run = Path(daemon.socket).parent
        # Outputs that the index knows may stay; `files_left` looks at them when the daemon has ended.
        state = (path for path in daemon.state.rglob("*") if path.parent.name != "outputs")
        files = frozenset(map(str, [*run.rglob("*"), *state]))
        return cls(open_now, below, open_descriptors(daemon.pid), files, kinds_of_descriptors(daemon.pid))

    def left(self, before: DaemonSnapshot | None) -> list[str]:
        """One line for each thing that was not there before, and for connections."""
        new = [f"{self.connections} connections"] if self.connections else []
        if before is None:
            return new
        new += [f"file {path}" for path in sorted(self.files - before.files)]
        if self.children > before.children:
            new.append(f"{self.children - before.children} processes")
        if self.descriptors > before.descriptors:
            kinds = ", ".join((self.kinds - before.kinds).elements()) or "of kinds that are not ours to see"
            new.append(f"{self.descriptors - before.descriptors} descriptors: {kinds}")
        return new


def connections(pid: int, socket: str) -> int:
    """How many connections a daemon has on its socket: the kernel lists an accepted one with the path, as the listener."""
    with open(f"/proc/{pid}/net/unix") as file:
        found = [line.split(maxsplit=7) for line in file]
    listens = f"{1 << 16:08X}"  # __SO_ACCEPTCON
    return sum(words[-1].rstrip("\n") == socket and words[3] != listens for words in found)


def open_descriptors(pid: int) -> int:
    """How many descriptors a process has open; its list is for its tracers, the count is not."""
    count = os.stat(f"/proc/{pid}/fd").st_size  # since Linux 6.2
    try:
        return count or len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return 0  # an older kernel, and no tracer: the count is not readable


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
    """A daemon with its own socket, state, configuration and home below one directory, and a project for its tools."""

    logs: ClassVar[weakref.WeakKeyDictionary[RunningDaemon, int]] = weakref.WeakKeyDictionary()
    """Of every daemon, how long its log was when the test began."""

    def __init__(
        self,
        directory: Path,
        *,
        command: Sequence[str] = (),
        options: Sequence[str] = ("--drain", "0"),
        config: str | None = None,
        environment: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        """Lay out the directory; `start` runs the daemon.

        - `directory`: exists, is empty, and is short, as a socket's path has at most some hundred bytes.
          It is the daemon's $HOME.
        - `command`: a module and its arguments in place of `toolcelld` with the socket, the state and the
          configuration; such a daemon finds them from its environment, and its configuration in $HOME/.config.
        - `options`: further arguments of every start; `start` may add to them.
        - `config`: the text of the configuration; "" writes no file, and by default tools may write into the directory.
        - `environment`: variables beside the few that the daemon of every test has.
        - `through`: a program, with its arguments, that becomes the daemon, as `sh -c 'exec "$@"' sh`.
        """
        self.directory = directory
        self.socket = str(directory / "run" / "daemon.sock")
        self.state = directory / "state"
        self.config = directory / (".config/toolcell/config.toml" if command else "config.toml")
        self.log = directory / "daemon.log"
        self.project = directory / "project"
        self.environment = dict(environment or {})
        self.through = list(through)
        self.group: Path | None = None
        """Its control group, where the tests were given one to make it in."""
        self.process: subprocess.Popen[bytes] | None = None
        self.before: DaemonSnapshot | None = None
        self._command = list(command)
        self._options = options
        self._default_config = ROOMY.format(directory=directory) if config is None else config
        self._numbers = itertools.count(2)
        self._blanks_ready: int | None = None
        self._log_bytes_read = 0
        self._write_config()
        (self.project / ".toolcell" / "tools").mkdir(parents=True, exist_ok=True)
        self.logs[self] = 0

    def start(self, *options: str) -> None:
        """Start it, let it do everything once, and look at what it holds then."""
        self.launch(*options)
        self.before = None
        self.before = self._warmed_up()

    def launch(self, *options: str) -> None:
        """Start it and wait until it reports that it serves, as it reports to systemd.

        Fails after `START_SECONDS_MAX`.
        """
        notifications = str(self.directory / "notify")
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
            self.log.open("ab") as log,
            waits_for_descriptions(self.config),
        ):
            manager.bind(notifications)
            manager.settimeout(START_SECONDS_MAX)
            self.process = subprocess.Popen(
                [*self._through(), sys.executable, "-m", *self._words(), *self._options, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.directory),
                    "LC_ALL": "C.UTF-8",
                    "NOTIFY_SOCKET": notifications,
                    **self.environment,
                },
            )
            try:
                assert b"READY=1" in manager.recv(4096)
            except TimeoutError:
                pytest.fail(f"the daemon does not start:\n{self.log.read_text()}")
        Path(notifications).unlink()

    def _words(self) -> list[str]:
        if self._command:
            return self._command
        places = ["--socket", self.socket, "--state", str(self.state), "--config", str(self.config)]
        return ["toolcelld", *places]

    def _write_config(self) -> None:
        if self._default_config:
            self.config.parent.mkdir(parents=True, exist_ok=True)
            self.config.write_text(self._default_config)

    def renew(self) -> None:
        """Give the next test a new project and the default configuration; starts the daemon if it does not run."""
        for path in self.directory.iterdir():
            if path not in (Path(self.socket).parent, self.state, self.log):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        # Under another name, as the daemon remembers crashes and descriptions by the path of the file.
        self.project = self.directory / f"project-{next(self._numbers)}"
        (self.project / ".toolcell" / "tools").mkdir(parents=True)
        self._write_config()
        if self.process is not None and self.process.poll() is not None:
            self.wait()  # it died in the test before, which has failed for it
        if self.process is None:
            self.start()
        else:
            self.reload()

    def _through(self) -> list[str]:
        if self.through or (base := delegation.base()) is None:
            return self.through
        self.group = delegation.make(base)
        return delegation.inside(self.group)

    def _warmed_up(self) -> DaemonSnapshot:
        """Have it do everything once, so that what it opens for good is open, and look at it then."""
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            tools = Path(directory) / ".toolcell" / "tools"
            tools.mkdir(parents=True)
            (tools / "warm.py").write_text("from toolcell import tool\n\n@tool\ndef warm() -> None: ...\n")
            request = toolcell_pb2.ListToolsRequest(directory=directory)
            found = self.ask("ToolCell/ListTools", request, toolcell_pb2.ListToolsResponse)
        assert [tool.name for tool in found.catalog.tools] == ["warm"], found.text
        return self.at_rest()

    def blanks(self) -> int:
        """How many cells wait when all have been built: those in namespaces of their own, where there are such, and others."""
        if self._blanks_ready is None:
            found = self.ask(
                "Operator/Doctor", operator_pb2.DoctorRequest(), operator_pb2.DoctorResponse
            ).findings
            strict = any(one.name == "strict" and one.state != "missing" for one in found)
            self._blanks_ready = READY_MAX * (2 if strict else 1)
        return self._blanks_ready

    def settle(self, blanks: int = 0) -> None:
        """Retire its idle workers, and wait until it has no session, call or worker, and `blanks` cells ready.

        What is in quarantine is released, as the next test finds it in the lists of the whole daemon.

        Fails if the daemon has died or does not come to rest.
        """
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon died:\n{self.log.read_text()}"
        deadline, pause = time.monotonic() + SETTLE_SECONDS_MAX, LOOK_SECONDS
        restart = "Operator/RestartWorkers", operator_pb2.RestartWorkersRequest(), RESTARTED
        with self._asking() as ask:
            ask(*restart)
            while True:  # it has no event for "idle"
                status = ask("Operator/GetStatus", operator_pb2.GetStatusRequest(), STATUS)
                if not (status.blanks < blanks or status.sessions or status.calls or status.workers):
                    if status.quarantined:
                        self._release(ask)
                    return
                if time.monotonic() > deadline:
                    log = self.log.read_text()[-4000:]
                    pytest.fail(f"the daemon does not come to rest: {status}\n{log}")
                if status.workers and not status.sessions and not status.calls:
                    ask(*restart)  # one that was told of the end of a session since
                time.sleep(pause)
                pause = min(1.3 * pause, LOOK_SECONDS_MAX)

    def _release(self, ask: Callable[..., Any]) -> None:
        listed = ask(
            "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
        )
        for held in listed.quarantined:
            ask("Operator/Release", operator_pb2.ReleaseRequest(tool=held.path), operator_pb2.ReleaseResponse)

    def at_rest(self) -> DaemonSnapshot:
        """What it holds when it is idle; fails if that never comes, or is more than after its start."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        # With all its cells built it stays as it is; with one half built it has a descriptor less.
        self.settle(blanks=self.blanks())
        while True:  # the connection that asked is closed last
            gc.collect()  # a client of the test's own in a cycle, as an expected exception makes one, keeps its connection
            world = DaemonSnapshot.of(self)
            if not (left := world.left(self.before)):
                if self.before is not None:
                    return world
                # A cell that is ready may still be told of by its keeper, and has a descriptor more then; and the thread of the
                # records makes files as it starts.
                time.sleep(STABLE_SECONDS)
                again = DaemonSnapshot.of(self)
                if (again.descriptors, again.files) == (world.descriptors, world.files):
                    return world
            if time.monotonic() > deadline:
                pytest.fail("left behind in the daemon:\n  " + "\n  ".join(left))
            time.sleep(0.01)

    def check(self) -> None:
        """Fail unless it still serves, and holds nothing more than after its start."""
        self.at_rest()
        self.check_log()
        assert threads(self.pid) <= THREADS_MAX, threads(self.pid)

    @classmethod
    def mark_logs(cls) -> None:
        """Note that a test begins."""
        for daemon in list(cls.logs):
            cls.logs[daemon] = daemon.log.stat().st_size if daemon.log.exists() else 0

    @classmethod
    def logged(cls) -> str:
        """What the daemons have logged since the test began."""
        said = {
            daemon.directory: daemon.log.read_bytes()[begin:].decode(errors="replace")
            for daemon, begin in list(cls.logs.items())
            if daemon.log.exists()
        }
        return "".join(f"{directory}:\n{text[-LOGGED_MAX:]}" for directory, text in said.items() if text)

    def check_log(self) -> None:
        """Fail if a traceback has been logged since the last look."""
        log = self.log.read_bytes()
        new, self._log_bytes_read = log[self._log_bytes_read :].decode(errors="replace"), len(log)
        assert "Traceback" not in new, new

    def ask(self, method: str, request: Message, response: type[R]) -> R:
        """One answer to an operator, without a loop: a fixture has none."""
        with self._asking() as ask:
            return ask(method, request, response)

    @contextmanager
    def _asking(self) -> Generator[Asks]:
        """Several answers over one connection: to make one takes as long as an answer."""
        token = (Path(self.socket).parent / "operator.token").read_text()
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:

            def ask(method: str, request: Message, response: type[R]) -> R:
                call = channel.unary_unary(
                    f"/toolcell.v1.{method}",
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=response.FromString,
                )
                identity = (("authorization", f"Bearer {token}"),)
                return call(request, metadata=identity, timeout=START_SECONDS_MAX)

            yield ask

    def configure(self, text: str) -> None:
        """Add to the configuration, and have the daemon read it."""
        with self.config.open("a") as config:
            config.write(text)
        self.reload()

    def reload(self) -> None:
        """Have it read its configuration again."""
        with waits_for_descriptions(self.config):
            self.ask("Operator/Reload", operator_pb2.ReloadRequest(), operator_pb2.ReloadResponse)

    def status(self) -> operator_pb2.GetStatusResponse:
        """How it is, by its own account."""
        return self.ask("Operator/GetStatus", operator_pb2.GetStatusRequest(), STATUS)

    def operate(self) -> AbstractAsyncContextManager[Operator]:
        """Both services, with the operator's token."""
        return operate(Running(self.socket))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended."""
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
            paths = [*(tool.path for tool in listed.tools), *(problem.path for problem in listed.problems)]
            found = {Path(path).stem for path in paths}

    def until_described(self, scopes: AbstractSet[str]) -> None:
        """Have the sources of the configuration described: to start many servers takes longer than a client waits."""
        request = toolcell_pb2.ListToolsRequest(directory=str(self.project))
        deadline = time.monotonic() + SERVERS_SECONDS_MAX
        found: set[str] = set()
        while not scopes <= found:
            assert time.monotonic() < deadline, f"never described: {scopes - found}"
            listed = self.ask("ToolCell/ListTools", request, toolcell_pb2.ListToolsResponse).catalog
            found = {tool.scope for tool in listed.tools}

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Session]:
        """A session in the project."""
        options.setdefault("directory", self.project)
        return connect(self.socket, daemon="running", **options)


@contextmanager
def waits_for_descriptions(config: Path) -> Generator[None]:
    """Add `open_wait` to a configuration while a daemon reads it; a test that sets it itself keeps its own.

    The file is as the test wrote it before and after, so that a test can add a table to it.
    """
    text = config.read_text() if config.is_file() else None
    if text is None or "open_wait" in text:
        yield
        return
    ours = f'[daemon]\nopen_wait = "{DESCRIBED_SECONDS_MAX}s"\n'
    theirs = re.search(r"^\[daemon\]\n", text, re.MULTILINE)
    config.write_text(text.replace("[daemon]\n", ours, 1) if theirs else f"{text}\n{ours}")
    try:
        yield
    finally:
        config.write_text(text)


KEPT: Final[set[RunningDaemon]] = set()
"""The daemons that run for several tests; only `kept` changes it."""
OTHERS_KEPT: Final[set[int]] = set()
"""Other processes that run for several tests, by id."""


def kept_processes() -> frozenset[int]:
    """Those that run now."""
    return frozenset(OTHERS_KEPT | {daemon.pid for daemon in KEPT if daemon.process is not None})


@contextmanager
def running_daemon(**arguments: Any) -> Generator[RunningDaemon]:
    """A daemon for several tests in a directory of its own, made with these arguments; checked and ended at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory,
        kept(RunningDaemon(Path(directory), **arguments)) as daemon,
    ):
        daemon.start()
        yield daemon


@contextmanager
def checked_after_use(daemon: RunningDaemon) -> Generator[RunningDaemon]:
    """Check a daemon of all tests after those of a file, so that a failure is found near its cause."""
    yield daemon
    if daemon.process is not None:
        daemon.check()


@contextmanager
def checked(daemon: RunningDaemon) -> Generator[RunningDaemon]:
    """Check a daemon and end it, unless it has been ended already."""
    try:
        yield daemon
        if daemon.process is not None:
            daemon.check()
    finally:
        if daemon.process is not None:
            assert daemon.stop() == 0


@contextmanager
def kept(daemon: RunningDaemon) -> Generator[RunningDaemon]:
    """As `checked`, for a daemon of several tests: the check of each test for processes left behind passes it over."""
    KEPT.add(daemon)
    try:
        with checked(daemon):
            yield daemon
    finally:
        KEPT.discard(daemon)


@contextmanager
def renewed(daemon: RunningDaemon) -> Generator[None]:
    """Renew a daemon for a test, and see it idle after the test, unless the test has ended it."""
    daemon.renew()
    yield
    if daemon.process is not None:
        daemon.settle()
        daemon.check_log()


@pytest.fixture
def make_daemon() -> Iterator[Callable[[], RunningDaemon]]:
    """Makes daemons for one test, which starts them; each is checked and ended with the test."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory, ExitStack() as ends:
        numbers = itertools.count()

        def make(**arguments: Any) -> RunningDaemon:
            path = Path(directory) / str(next(numbers))
            path.mkdir(mode=0o700)
            return ends.enter_context(checked(RunningDaemon(path, **arguments)))

        yield make


@pytest.fixture(scope="session")
def lasting_daemon() -> Iterator[RunningDaemon]:
    """The daemon of all tests of a directory, in this process of tests."""
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def shared_daemon(lasting_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The same, for the tests of a file, after which it is checked."""
    with checked_after_use(lasting_daemon):
        yield lasting_daemon


@pytest.fixture
def daemon(shared_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The same, for a test, as if it had just been started: its project is new, its configuration the default."""
    with renewed(shared_daemon):
        yield shared_daemon
