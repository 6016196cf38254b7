"""`toolcell status` and `stop`: with a daemon, without one, with one that hangs, and with a stranger on its socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.conftest import SECONDS_MAX, Done, Project, user_daemon
from tests.daemons import RunningDaemon

from toolcell._version import VERSION

SLOW = """
import time
from toolcell import tool

@tool
def slow(mark: str) -> str:
    open(mark, "w").close()
    open(mark).close()
    return "done"
"""


@pytest.fixture
def started(project: Project) -> Generator[RunningDaemon]:
    """A daemon that the test may end itself."""
    daemon = user_daemon(project.home)
    daemon.launch()
    yield daemon
    if daemon.process is not None:
        with contextlib.suppress(ProcessLookupError):
            daemon.process.send_signal(signal.SIGCONT)
        daemon.stop()


def test_without_a_daemon_status_says_so_and_where_its_files_would_be(project: Project) -> None:
    done = project.run("status")
    assert done.code == 69
    assert done.out.splitlines()[:2] == ["No daemon runs.", f"  socket  {project.socket}"]
    assert "toolcell serve" in done.err
    found = project.run("status", "--json")
    assert found.code == 69
    assert found.json("status") | {"running": False, "pid": None} == found.json("status")
    done = project.run("stop")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"No daemon runs on {project.socket}.\n"
    assert project.run("stop", "--json").json("stop") == {"was_running": False, "pid": None, "calls": []}


@pytest.mark.slow
def test_a_socket_that_a_killed_daemon_left_is_no_daemon(project: Project, started: RunningDaemon) -> None:
    started.stop(signal.SIGKILL)
    assert Path(project.socket).exists()
    assert project.run("status").out.startswith("No daemon runs.\n")
    assert project.run("stop").code == 0


@pytest.mark.slow
def test_status_has_the_process_the_figures_and_the_places(project: Project, started: RunningDaemon) -> None:
    found = project.run("status", "--json").json("status")
    assert (found["running"], found["pid"], found["state"]) == (True, started.pid, "serving")
    assert (found["version"], found["client_version"]) == (VERSION, VERSION)
    assert (found["sessions"], found["calls"], found["calls_ended"]) == (0, 0, 0)
    assert found["state_directory"] == str(started.state)
    assert found["log"] == str(started.log)
    done = project.run("status")
    assert done.code == 0
    assert done.out.startswith(f"A daemon runs: process {started.pid}, serving for ")
    shown = dict(line.split(maxsplit=1) for line in done.out.splitlines()[1:])
    assert shown["socket"] == project.socket
    assert shown["log"] == str(started.log)
    assert shown["calls"] == "0 waiting or running, 0 ended"


@pytest.mark.slow
def test_stop_says_which_calls_it_waits_for_and_returns_when_the_daemon_is_gone(
    project: Project, started: RunningDaemon
) -> None:
    project.tool("slow", SLOW)
    mark = project.directory / "mark"
    os.mkfifo(mark)
    with project.started("call", "slow", "mark=mark") as call:
        mark.open().close()  # returns when the tool has opened it as well
        with project.started("stop") as stop:
            assert stop.stderr is not None
            waiting = stop.stderr.readline()
            assert "waits some seconds for 1 call: slow (c-" in waiting
            assert project.run("status", "--json").json("status")["state"] == "draining"
            mark.open("w").close()
            out, _ = stop.communicate(timeout=SECONDS_MAX)
        assert out == f"The daemon, process {started.pid}, has ended.\n"
        assert call.communicate(timeout=SECONDS_MAX)[0] == "done\n"  # it got its time
    assert started.wait() == 0
    assert not Path(project.socket).exists()


HUNG = (
    "status", "stop", "tools", "ps", "calls", "calls c-1", "doctor", "call slow", "logs", "reload", "release slow",
    "disable slow", "enable slow", "quarantine slow", "drain", "log-level info", "abort c-1", "restart slow", "output o-1", "trust", "check",
)  # fmt: skip
"""Commands that talk to a daemon."""


@pytest.mark.slow
def test_a_daemon_that_hangs_is_named_by_every_command_and_the_advice_works(
    project: Project, started: RunningDaemon
) -> None:
    os.kill(started.pid, signal.SIGSTOP)

    def run(words: str) -> Done:
        return project.run(*words.split())

    with ThreadPoolExecutor(len(HUNG)) as threads:
        done = dict(zip(HUNG, threads.map(run, HUNG), strict=True))
    for words, each in done.items():
        assert (each.code, each.out) == (69, ""), (words, each)
        assert f"process {started.pid}, has not answered for 5 s.\n" in each.err, words
        assert f"kill -KILL {started.pid}\n" in each.err, words
    os.kill(started.pid, signal.SIGCONT)
    assert project.run("status").code == 0  # nobody has signalled it
    os.kill(started.pid, signal.SIGSTOP)
    started.stop(signal.SIGKILL)  # what every one of them advised
    assert project.run("tools").code == 0  # with a daemon of its own
    ps = project.run("ps")
    assert (ps.code, "Start the daemon: toolcell serve" in ps.err) == (69, True)


@pytest.mark.slow
def test_a_full_queue_of_connections_is_a_daemon_that_hangs(project: Project) -> None:
    run = Path(project.socket).parent
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(project.socket)
        (run / "agent.token").write_text("t")
        server.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(project.socket)
        done = project.run("ps")
    os.unlink(project.socket)
    (run / "agent.token").unlink()
    assert (done.code, "has not answered for 5 s." in done.err) == (69, True)


@pytest.mark.slow
def test_an_agent_may_not_see_the_status(project: Project, started: RunningDaemon) -> None:
    run = Path(project.socket).parent
    (run / "operator.token").write_bytes((run / "agent.token").read_bytes())
    for command in ("status", "stop"):
        assert project.run(command, "--json").json("error")["error"]["code"] == "unauthenticated"
    assert started.process is not None
    assert started.process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("relay", [False, True])
def test_a_stranger_on_the_socket_is_not_ended(
    project: Project, started: RunningDaemon, *, relay: bool
) -> None:
    """One that closes each connection, and one that hands each on to the daemon: it answers, and is another process."""
    stranger = project.home / "stranger"
    stranger.mkdir(mode=0o700)
    for token in ("agent.token", "operator.token"):
        (stranger / token).write_bytes((Path(project.socket).parent / token).read_bytes())
    path = str(stranger / "daemon.sock")
    with strange_listener(path, project.socket if relay else ""):
        done = project.run("stop", "--socket", path)
    assert done.code == 69
    if relay:
        assert f"Process {os.getpid()} listens on {path}, and says that it is another one." in done.err
    assert started.process is not None
    assert started.process.poll() is None


@contextlib.contextmanager
def strange_listener(path: str, target: str) -> Generator[None]:
    """Listen in this process: close every connection, or connect it with a target."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    threads: list[threading.Thread] = []

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with contextlib.ExitStack() as stack:
                    stack.enter_context(client)
                    if not target:
                        continue
                    behind = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    behind.connect(target)
                    back = threading.Thread(target=copy, args=(behind, client))
                    back.start()
                    copy(client, behind)
                    back.join(SECONDS_MAX)

    serving = threading.Thread(target=serve)
    threads.append(serving)
    serving.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(SECONDS_MAX)
        listener.close()


def test_the_log_of_a_terminal_or_a_pipe_is_no_place(project: Project) -> None:
    program = "import os\nfrom toolcelld.event_log import log_place\nprint(repr(log_place(dict(os.environ))))"
    with open(project.home / "log", "wb") as log:
        told = [
            subprocess.run(
                [sys.executable, "-c", program],
                stdout=subprocess.PIPE,
                stderr=target,
                env=environment,
                check=True,
            ).stdout
            for target, environment in (
                (log, {}),
                (log, {"JOURNAL_STREAM": "1:2"}),  # inherited from another process
                (subprocess.DEVNULL, {}),
                (subprocess.PIPE, {}),
            )
        ]
    path = repr(str(project.home / "log")).encode() + b"\n"
    assert told == [path, path, b"''\n", b"''\n"]
