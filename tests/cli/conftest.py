"""The real command, in a project of its own, with a real daemon where a test wants one."""

from __future__ import annotations

import codecs
import json
import os
import select
import subprocess
import sys
import tempfile
import termios
import textwrap
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.forked import ForkedCommand, ForkedCommands
from tests.daemons import RunningDaemon, checked, checked_after_use, kept, renewed

import toolcell.cli
from toolcell._arguments.jsonschema import violations

__all__ = [
    "Done",
    "Project",
    "daemon",
    "fits",
    "forked_commands",
    "lasting_daemon",
    "own_daemon",
    "project",
    "shared_daemon",
    "user_daemon",
]

# Half a second here; other tests may have the processors.
SECONDS_MAX = 60
LOCALE = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, but every key must stand in it: what is printed and not promised is noticed."""
    return schema | {"additionalProperties": False} if "properties" in schema else schema


SCHEMAS = json.loads(
    Path(toolcell.cli.__file__).with_name("output.schema.json").read_text(), object_hook=closed
)["$defs"]


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self, name: str) -> Any:
        """What it printed, held against the schema of that name."""
        value = json.loads(self.out)
        fits(value, name)
        return value


def fits(value: Any, name: str) -> None:
    """Hold a value against one of the schemas."""
    assert list(violations(value, SCHEMAS[name], {"$defs": SCHEMAS})) == []


ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Screen:
    """A command on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes] | ForkedCommand, descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read_to = 0

    def until(self, text: str) -> None:
        """Read until a text appears behind those that were waited for before."""
        while (place := self.text.find(text, self._read_to)) < 0:
            assert self._more(), f"{text!r} never came: {self.text!r}"
        self._read_to = place + len(text)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._more():
            pass
        return self._process.wait(SECONDS_MAX)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], SECONDS_MAX)
        assert ready, f"nothing more comes: {self.text!r}"
        try:
            piece = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            piece = b""
        self.text += self._decoder.decode(piece)
        return bool(piece)

    def close(self) -> None:
        os.close(self._descriptor)
        self._process.kill()
        self._process.wait(SECONDS_MAX)


class Project:
    """A directory with tools, a home of its own, and the command."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.directory = directory
        self.tools = directory / ".toolcell" / "tools"
        self.tools.mkdir(parents=True, exist_ok=True)
        self.socket = str(home / "run" / "daemon.sock")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home),
            **LOCALE,
            "TOOLCELL_SOCKET": self.socket,
        }

    def tool(self, name: str, source: str) -> Path:
        """Write a tool file."""
        path = self.tools / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        return path

    def run(self, *words: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run the command to its end, without a terminal."""
        done = self.run_program("", *words, stdin=stdin, env=env)
        assert "Traceback" not in done.err, done.err
        return done

    def run_program(
        self, program: str, *words: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> Done:
        """The same for a program that runs the command, or a part of it, in its own way; "" is the command."""
        environment = {**self.environment, **(env or {})}
        forking = ForkedCommands.running
        if forking is not None and not any(name.startswith("PYTHON") for name in environment):
            code, out, err = forking.run(
                words, self.directory, environment, stdin.encode(), SECONDS_MAX, program
            )
            return Done(code, _text(out), _text(err))
        done = subprocess.run(
            [sys.executable, "-P", *(("-c", program) if program else ("-m", "toolcell.cli")), *words],
            cwd=self.directory,
            env=environment,
            input=stdin.encode(),
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        return Done(done.returncode, _text(done.stdout), _text(done.stderr))

    def run_anew(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run the command to its end in an interpreter of its own, without a terminal."""
        return subprocess.run(
            [sys.executable, "-m", "toolcell.cli", *words],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def run_bytes(self, *words: str) -> bytes:
        """The same; its output as it is."""
        return self.run_anew(*words).stdout

    @contextmanager
    def started(self, *words: str) -> Generator[subprocess.Popen[str]]:
        """Start the command without a terminal; it is waited for, and killed if it does not end."""
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "toolcell.cli", *words],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def screen(
        self,
        *words: str,
        columns: int = 80,
        env: Mapping[str, str] | None = None,
        typed: bool = True,
        forked: bool = False,
    ) -> Generator[Screen]:
        """Run the command on a terminal of so many columns, which its input comes from as well if `typed`.

        With `forked` it is one that `ForkedCommands` starts, for tests of what it shows.
        """
        descriptor, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (50, columns))
        environment = {**self.environment, **(env or {})}
        process: subprocess.Popen[bytes] | ForkedCommand
        try:
            if forked and (forking := ForkedCommands.running) is not None:
                process = forking.start_on([terminal] * 3, words, self.directory, environment)
            else:
                # Not `pty.fork`: gRPC may have threads in this process.
                process = subprocess.Popen(
                    [sys.executable, "-I", "-c", ON_TERMINAL, sys.executable, "-m", "toolcell.cli", *words],
                    cwd=self.directory,
                    env=environment,
                    stdin=terminal if typed else subprocess.DEVNULL,
                    stdout=terminal,
                    stderr=terminal,
                    start_new_session=True,
                )
        finally:
            os.close(terminal)
        screen = Screen(process, descriptor)
        try:
            yield screen
        finally:
            screen.close()


def _text(output: bytes) -> str:
    """As a file that is read as text has it."""
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


@pytest.fixture(scope="session", autouse=True)
def forked_commands() -> Iterator[None]:
    """Let `Project.run` fork its commands; see `forked`."""
    with ForkedCommands.started({"PATH": os.environ["PATH"], **LOCALE}):
        yield


@pytest.fixture
def project() -> Iterator[Project]:
    """A project without a daemon, in a short directory: a socket's path has at most some hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        made = Project(Path(directory), Path(directory) / "project")
        yield made
        if any(Path(directory).glob("**/daemon.sock")):
            made.run("stop", "-q")  # a call has started it


def user_daemon(home: Path, through: Sequence[str] = (), **variables: str) -> RunningDaemon:
    """The user's daemon, to be started by the command itself, or by a program that becomes the command."""
    words = ["toolcell.cli", "serve", "--state", str(home / "state"), "--idle-exit", "7200"]
    environment = {**Project(home, home / "project").environment, **variables}
    return RunningDaemon(home, command=words, options=(), config="", environment=environment, through=through)


@pytest.fixture(scope="session")
def lasting_daemon() -> Iterator[RunningDaemon]:
    """The daemon of a user, for all tests of the command in this process of tests."""
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home,
        kept(user_daemon(Path(home))) as daemon,
    ):
        daemon.start()
        yield daemon


@pytest.fixture(scope="module")
def shared_daemon(lasting_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The same, for the tests of a file, after which it is checked."""
    with checked_after_use(lasting_daemon):
        yield lasting_daemon


@pytest.fixture
def daemon(shared_daemon: RunningDaemon) -> Iterator[Project]:
    """A project whose user's daemon runs."""
    with renewed(shared_daemon):
        yield Project(shared_daemon.directory, shared_daemon.project)


@pytest.fixture
def own_daemon(project: Project) -> Iterator[Project]:
    """The same with a daemon that no other test has had."""
    with checked(user_daemon(project.home)) as daemon:
        daemon.start()
        yield project
