"""The unit as a user has it: started, called, killed, hung, stopped by a real user manager.

Runs where there is a user manager for this user: on a desktop, and in `make test-systemd`, which boots one.
The unit file is the repository's own; only the directory of the programs and a log are set, as a user would with `systemctl edit`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.process.test_activation import ask, ask_at_once

ROOT = Path(__file__).parents[2]
UNIT = "toolcelld.service"
SOCKET = "toolcelld.socket"
SECONDS_MAX = 60

TOOLS = '''
import os, pathlib, subprocess, time
from toolcell import tool

@tool
def group() -> str:
    """Say which control group this is."""
    return pathlib.Path("/proc/self/cgroup").read_text().splitlines()[-1].partition("::")[2]

@tool
def stubborn(mark: str) -> None:
    """Start a process that outlives everything, and wait for ever."""
    subprocess.Popen(["setsid", "sleep", "1000"], start_new_session=True)
    pathlib.Path(mark).touch()
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
'''


CLIENT = """
import asyncio
from toolcell.client import connect

async def main():
    async with connect() as session:
        outcome = await session.call("t_group")
        print(outcome.kind, outcome.text)

asyncio.run(main())
"""

ACROSS = """
import asyncio, json, sys
from toolcell.client import connect

async def main():
    async with connect() as session:
        first = session.id
        lost = await session.call("t_stubborn", {"mark": sys.argv[1]})
        again = await session.call("t_group")
        print(json.dumps([lost.kind, lost.cause, lost.ran, lost.message, again.kind, session.id != first]))

asyncio.run(main())
"""

# The daemon gives a sign of life three times in it, so a busy machine may hold it up for seconds.
WATCHDOG_SECONDS = 8


def manager(*words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["systemctl", "--user", "--no-pager", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(name: str) -> str:
    return manager("show", UNIT, f"--property={name}", "--value").strip()


pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not os.path.exists(f"{os.environ.get('XDG_RUNTIME_DIR', '')}/systemd/private"),
        reason="no user manager runs for this user; `make test-systemd` boots one",
    ),
]


class Project:
    """A project with tools, and the command without any setting of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        tools = place / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        (tools / "t.py").write_text(TOOLS)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "toolcell.cli", *words],
            cwd=self.place,
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self._started("-m", "toolcell.cli", *words)

    def start_python(self, code: str, *words: str) -> subprocess.Popen[str]:
        return self._started("-c", code, *words)

    def _started(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def override() -> Path:
    """The directory of settings beside the unit's own."""
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "systemd" / "user" / f"{UNIT}.d"


@pytest.fixture
def installed() -> Iterator[None]:
    """The unit of the repository, for this user and until the machine is started again."""
    assert "loaded" not in shown("LoadState"), f"{UNIT} is installed for this user; it would be replaced"
    override().mkdir(parents=True)
    directory = override().parent
    for name in (UNIT, SOCKET):
        (directory / name).write_text((ROOT / "systemd" / name).read_text())
    log = directory / "toolcelld.log"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    (override() / "program.conf").write_text(
        f"[Service]\nEnvironment=PATH={path}\nStandardError=append:{log}\n"
    )
    manager("daemon-reload")
    yield
    print(log.read_text() if log.exists() else "the daemon said nothing")  # shown where a test fails
    log.unlink(missing_ok=True)
    manager("stop", SOCKET, UNIT, check=False)
    manager("reset-failed", UNIT, check=False)
    shutil.rmtree(override())
    for name in (UNIT, SOCKET):
        (directory / name).unlink()
    manager("daemon-reload")


def processes(group: str) -> set[int]:
    """All processes in a control group and below it; systemd may remove it meanwhile."""
    found: set[int] = set()
    for directory, _, _ in os.walk(Path("/sys/fs/cgroup") / group.lstrip("/")):
        with suppress(OSError):
            found.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
    return found


def wait_until(what: str, condition: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def test_a_client_starts_the_service_that_is_installed(project: Project, installed: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT], cwd=project.place, check=False, capture_output=True, text=True
    )
    assert shown("ActiveState") == "active", (done, manager("status", UNIT, check=False))
    assert done.stdout.startswith("ok "), done
    pids = {worker["pid"] for worker in json.loads(project.run("ps", "--json").stdout)["workers"]}
    assert pids
    assert pids <= processes(shown("ControlGroup"))


def test_the_first_connections_of_any_program_start_the_service(project: Project, installed: None) -> None:
    path = f"{os.environ['XDG_RUNTIME_DIR']}/toolcell/daemon.sock"
    manager("start", SOCKET)
    for _ in range(2):  # the second time after a stop
        assert project.run("status").returncode == 69
        assert shown("ActiveState") == "inactive", "to look at it starts none"
        _, pids = ask_at_once(path, lambda: None)
        assert pids == {int(shown("MainPID"))}
        assert shown("NRestarts") == "0"
        manager("stop", UNIT)
    assert project.run("call", "t_group").returncode == 0
    os.kill(int(shown("MainPID")), signal.SIGKILL)
    wait_until("it is started again", lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active")
    assert ask(path) == int(shown("MainPID"))
    assert project.run("stop").returncode == 0
    assert ask(path) == int(shown("MainPID"))


def test_a_service_that_is_killed_is_started_again_and_leaves_nothing(
    project: Project, installed: None, tmp_path: Path
) -> None:
    manager("start", UNIT)
    mark = tmp_path / "mark"
    call = project.start("call", "t_stubborn", f"mark={mark}", "--json")
    wait_until("the tool runs", mark.exists)
    group, main = shown("ControlGroup"), int(shown("MainPID"))
    before = processes(group)
    assert len(before) > 3
    os.kill(main, signal.SIGKILL)
    out, err = call.communicate(timeout=SECONDS_MAX)
    assert json.loads(out)["kind"] == "internal", (out, err)
    wait_until("those of the killed daemon are gone", lambda: not before & processes(group))
    wait_until("it is started again", lambda: shown("MainPID") not in ("0", str(main)))
    assert project.run("call", "t_group").returncode == 0


def test_a_service_that_hangs_is_started_again_and_its_clients_go_on(
    project: Project, installed: None, tmp_path: Path
) -> None:
    assert "\nWatchdogSec=" in (ROOT / "systemd" / UNIT).read_text(), "it is made shorter here, and no more"
    (override() / "watchdog.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
    manager("daemon-reload")
    manager("start", UNIT)
    mark = tmp_path / "mark"
    client = project.start_python(ACROSS, str(mark))
    wait_until("the tool runs", mark.exists)
    group, main = shown("ControlGroup"), int(shown("MainPID"))
    before = processes(group)
    assert len(before) > 3
    os.kill(main, signal.SIGSTOP)
    out, err = client.communicate(timeout=SECONDS_MAX)
    kind, cause, ran, message, again, other_session = json.loads(out)
    assert (kind, cause, ran) == ("internal", "connection_lost", True), (out, err)
    assert message.startswith("The daemon was restarted while the call was under way."), message
    assert (again, other_session) == ("ok", True), (out, err)
    assert shown("NRestarts") == "1"
    assert shown("MainPID") != str(main)
    wait_until("those of the daemon that hung are gone", lambda: not before & processes(group))
    assert not {pid for pid in before if os.path.exists(f"/proc/{pid}")}


def test_a_service_that_is_stopped_ends_its_calls_and_leaves_nothing(
    project: Project, installed: None, tmp_path: Path
) -> None:
    manager("start", UNIT)
    mark = tmp_path / "mark"
    call = project.start("call", "t_stubborn", f"mark={mark}", "--json")
    wait_until("the tool runs", mark.exists)
    group = shown("ControlGroup")
    before = processes(group)
    manager("stop", UNIT)
    out, err = call.communicate(timeout=SECONDS_MAX)
    assert json.loads(out)["kind"] == "aborted", (out, err)
    assert shown("Result") == "success"
    assert not {pid for pid in before if os.path.exists(f"/proc/{pid}")}


def test_a_reload_reads_the_configuration_and_keeps_the_calls(project: Project, installed: None) -> None:
    manager("start", UNIT)
    main = shown("MainPID")
    manager("reload", UNIT)
    assert shown("MainPID") == main
    assert project.run("call", "t_group").returncode == 0


def test_cells_are_confined_under_the_unit_as_they_are_without_it(project: Project, installed: None) -> None:
    def found() -> dict[str, str]:
        said = json.loads(project.run("doctor", "--json").stdout)["findings"]
        wanted = [
            one for one in said if one["kind"] in ("profile", "layer") or one["name"] == "protected names"
        ]
        return {one["name"]: one["state"] for one in wanted}

    assert manager("is-active", UNIT, check=False).strip() != "active"
    without = found()  # by a daemon of its own
    manager("start", UNIT)
    assert found() == without
    assert project.run("call", "t_group").returncode == 0
    status = Path(f"/proc/{shown('MainPID')}/status").read_text()
    assert "\nNoNewPrivs:\t1\n" in status
    assert "\nSeccomp:\t2\n" in status, "the filters of the unit hold for the daemon"
