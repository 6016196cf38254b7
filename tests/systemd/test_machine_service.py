"""The services that root installs, under a real systemd: that of a user without a login, and that of the account.

They add users, write to /etc and start what is enabled there, so they run as root of a second systemd and nowhere else:
`make test-systemd` boots one with copies of those directories.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.wheels import ROOT

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        "GUEST_MACHINE" not in os.environ, reason="not the root of a second systemd: make test-systemd"
    ),
]
SECONDS_MAX: Final = 90
# The daemon gives a sign of life three times in it, so a busy machine may hold it up for seconds.
WATCHDOG_SECONDS: Final = 8
UNITS: Final = Path("/etc/systemd/system")
TOOL: Final = '''
import os, pathlib, signal, sys
from toolcell import tool

@tool
def who() -> str:
    """Say as whom the tool runs, and where it works."""
    return f"{os.getuid()} {pathlib.Path.cwd()}"

@tool
def write(path: str) -> str:
    pathlib.Path(path).write_text("x")
    return "written"

@tool
def crash() -> None:
    sys.stderr.write("last words\\nTOOLCELL_CALL=forged\\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
'''


def root(*words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert code is None or done.returncode == code, done
    return done


def service(*words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    return root(sys.executable, "-m", "toolcell.cli", "service", *words, code=code)


def shown(unit: str, name: str) -> str:
    return root("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()


def is_shown(unit: str, name: str, value: str) -> bool:
    return shown(unit, name) == value


def wait_until(what: str, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


class Person:
    """A user of this machine with a project, whose commands have no more than a login gives."""

    def __init__(self, name: str, home: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.home = home
        self.uid = pwd.getpwnam(name).pw_uid
        self._environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environment}
        self.project = home / "project"
        tools = self.project / ".toolcell" / "tools"
        self.made(tools, self.project)
        (tools / "t.py").write_text(TOOL)

    @property
    def config(self) -> Path:
        path = self.home / ".config" / "toolcell" / "config.toml"
        self.made(path.parent, path.parent.parent)
        return path

    def made(self, directory: Path, first: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        root("chown", "--recursive", f"{self.name}:", str(first))

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "toolcell.cli", *words],
            cwd=self.project,
            env=self._environment,
            user=self.uid,
            group=pwd.getpwnam(self.name).pw_gid,
            extra_groups=[],
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert code is None or done.returncode == code, done
        return done

    def findings(self) -> dict[str, str]:
        """What `doctor` says of the sandbox."""
        said = json.loads(self.run("doctor", "--json", code=None).stdout)["findings"]
        wanted = [
            one for one in said if one["kind"] in ("profile", "layer") or one["name"] == "protected names"
        ]
        return {one["name"]: f"{one['state']}: {one['detail']}" for one in wanted}


def person(name: str) -> Person:
    """A user with a directory for the socket as after a login, and without one."""
    home = Path("/var/lib") / name
    root("useradd", "--create-home", "--home-dir", str(home), "--shell", "/bin/bash", name)
    return Person(name, home, {"XDG_RUNTIME_DIR": f"/run/user/{pwd.getpwnam(name).pw_uid}"})


@pytest.fixture
def ada() -> Iterator[Person]:
    ada = person("ada")
    yield ada
    unit = f"toolcelld@{ada.uid}.service"
    print(root("journalctl", "--no-pager", "--unit", unit, code=None).stdout)  # shown where a test fails
    service("uninstall", "--user", "ada", code=None)
    root("userdel", "--remove", "--force", "ada", code=None)


def test_the_service_of_a_user_serves_without_a_login_and_after_its_daemon_was_killed(ada: Person) -> None:
    unit = f"toolcelld@{ada.uid}.service"
    assert service("status", "--user", "ada", code=69).stdout.startswith("No service is installed.")
    for _ in range(2):  # again is no mistake
        said = json.loads(service("install", "--user", "ada", "--json").stdout)
        assert said["unit"] == str(UNITS / "toolcelld@.service")
    assert (shown(unit, "ActiveState"), shown(unit, "UnitFileState")) == ("active", "enabled")
    text = (UNITS / "toolcelld@.service").read_text()
    assert f'\nExecStart="{sys.executable}" -P -m toolcelld\n' in text
    assert "/usr/bin/env" not in text
    first = ada.run("call", "t_who").stdout.split()
    assert first[:2] == [str(ada.uid), str(ada.project)]
    main = int(shown(unit, "MainPID"))
    assert os.stat(f"/proc/{main}/task").st_uid in (0, ada.uid)  # root's where it is not dumpable
    assert f"\nUid:\t{ada.uid}\t" in Path(f"/proc/{main}/status").read_text()
    assert json.loads(ada.run("status", "--json").stdout)["pid"] == main
    os.kill(main, signal.SIGKILL)
    wait_until("it is started again", lambda: shown(unit, "MainPID") not in ("0", str(main)))
    assert ada.run("call", "t_who").stdout.split() == first
    assert json.loads(ada.run("status", "--json").stdout)["pid"] == int(shown(unit, "MainPID"))
    root("systemctl", "reload", unit)
    said = json.loads(service("status", "--user", "ada", "--json").stdout)
    assert (said["active"], said["restarts"]) == (True, 1)


def test_the_services_of_root_are_started_again_when_their_daemons_hang(ada: Person) -> None:
    assert "\nWatchdogSec=" in (ROOT / "systemd" / "toolcelld.service").read_text(), "it is made shorter here"
    root("useradd", "--system", "--home-dir", "/var/lib/toolcell", "--shell", "/usr/sbin/nologin", "toolcell")
    drop_ins = [UNITS / "toolcelld@.service.d", UNITS / "toolcelld.service.d"]
    try:
        for drop_in in drop_ins:
            drop_in.mkdir()
            (drop_in / "watchdog.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
        service("install", "--user", "ada")
        service("install", "--system")
        account = Person(
            "toolcell", Path("/var/lib/toolcell"), {"TOOLCELL_SOCKET": "/run/toolcell/daemon.sock"}
        )
        people = {f"toolcelld@{ada.uid}.service": ada, "toolcelld.service": account}
        hung = {unit: int(shown(unit, "MainPID")) for unit in people}
        for pid in hung.values():
            os.kill(pid, signal.SIGSTOP)
        for unit, person in people.items():
            wait_until("it is started again", partial(is_shown, unit, "NRestarts", "1"))
            wait_until("it serves", partial(is_shown, unit, "ActiveState", "active"))
            assert person.run("call", "t_who").stdout.split()[0] == str(person.uid)
            assert int(shown(unit, "MainPID")) != hung[unit]
            assert not os.path.exists(f"/proc/{hung[unit]}")
    finally:
        print(root("journalctl", "--no-pager", "--unit", "toolcelld.service", code=None).stdout)
        service("uninstall", "--system", code=None)
        root("userdel", "--force", "toolcell", code=None)
        for drop_in in drop_ins:
            shutil.rmtree(drop_in, ignore_errors=True)


def test_a_client_waits_for_the_service_that_root_runs_for_its_user(ada: Person) -> None:
    unit = f"toolcelld@{ada.uid}.service"
    service("install", "--user", "ada")
    drop_in = UNITS / f"{unit}.d"
    drop_in.mkdir()
    (drop_in / "slow.conf").write_text("[Service]\nExecStartPre=/bin/sleep 2\n")
    root("systemctl", "daemon-reload")
    root("systemctl", "restart", "--no-block", unit)
    wait_until("it is about to start", lambda: shown(unit, "ActiveState") == "activating")
    assert ada.run("call", "t_who").stdout.startswith(str(ada.uid))
    assert json.loads(ada.run("status", "--json").stdout)["pid"] == int(shown(unit, "MainPID"))
    root("rm", "--recursive", str(drop_in))


def test_cells_are_confined_under_the_service_of_a_user_as_without_it(ada: Person) -> None:
    root("systemctl", "start", f"user-runtime-dir@{ada.uid}.service")
    without = ada.findings()
    ada.run("stop", code=None)
    service("install", "--user", "ada")
    assert ada.findings() == without
    assert ada.run("call", "t_write", "path=of-the-tool").stdout == "written\n"
    assert (ada.project / "of-the-tool").read_text() == "x"


def test_a_mistake_in_the_configuration_ends_the_start_and_is_told_to_root_and_to_the_user(
    ada: Person,
) -> None:
    unit = f"toolcelld@{ada.uid}.service"
    service("install", "--user", "ada")
    root("systemctl", "stop", unit)
    ada.config.write_text("[daemon]\n\nworkesr = 3\n")
    said = service("install", "--user", "ada", code=69).stderr
    assert f"{ada.config}:3: " in said
    assert "workesr" in said
    root("systemctl", "start", unit, code=1)
    assert (shown(unit, "ExecMainStatus"), shown(unit, "NRestarts")) == ("78", "0")
    said = ada.run("call", "t_who", code=69).stderr
    assert f"{ada.config}:3: " in said
    assert f"as root: systemctl restart {unit}" in said
    ada.config.write_text("[daemon]\nworkers = 3\n")
    root("systemctl", "restart", unit)
    assert ada.run("call", "t_who").stdout.startswith(str(ada.uid))


def test_a_record_in_the_journal_has_fields_and_no_text_of_a_tool_makes_one(ada: Person) -> None:
    unit = f"toolcelld@{ada.uid}.service"
    service("install", "--user", "ada")
    ada.run("call", "t_crash", code=4)

    def entries(*fields: str) -> list[dict[str, Any]]:
        said = root("journalctl", "--no-pager", "--output=json", "--unit", unit, *fields).stdout
        return [json.loads(line) for line in said.splitlines()]

    wait_until("the death is in the journal", lambda: entries("TOOLCELL_TOOL=t_crash"))
    found = entries("TOOLCELL_TOOL=t_crash")[0]
    (call,) = json.loads(ada.run("calls", "--json").stdout)["calls"]
    assert found["TOOLCELL_CALL"] == call["call_id"]
    assert found["TOOLCELL_SESSION"] == call["session_id"]
    assert found["TOOLCELL_WORKER"].startswith("w-")
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"]) == ("6", "toolcelld")
    assert found["LOGGER"].startswith("toolcelld.")
    assert "SIGSEGV" in found["MESSAGE"]
    assert entries(f"TOOLCELL_CALL={call['call_id']}")
    assert entries("TOOLCELL_CALL=forged") == []
    text = service("logs", "--user", "ada").stdout
    assert "SIGSEGV" in text
    assert "\nTOOLCELL_CALL=forged" not in text


def test_the_template_goes_with_the_last_of_its_users(ada: Person) -> None:
    bob = person("bob")
    try:
        service("install", "--user", "ada")
        service("install", "--user", "bob")
        assert ada.run("call", "t_who").stdout.split()[0] == str(ada.uid)
        assert bob.run("call", "t_who").stdout.split()[0] == str(bob.uid)
        service("uninstall", "--user", "bob")
        assert (UNITS / "toolcelld@.service").exists()
        assert shown(f"toolcelld@{ada.uid}.service", "ActiveState") == "active"
        service("uninstall", "--user", "ada")
        assert not (UNITS / "toolcelld@.service").exists()
    finally:
        service("uninstall", "--user", "bob", code=None)
        root("userdel", "--remove", "--force", "bob", code=None)


def test_the_service_of_the_account_sees_its_state_and_no_home(ada: Person) -> None:
    said = service("install", "--system", code=1).stderr
    (command,) = [line.partition(": ")[2] for line in said.splitlines() if "useradd" in line]
    root(*command.split())
    try:
        service("install", "--system")
        assert shown("toolcelld.service", "ActiveState") == "active"
        home = Path("/var/lib/toolcell")
        assert (home.stat().st_mode & 0o777, home.owner()) == (0o700, "toolcell")
        account = Person("toolcell", home, {"TOOLCELL_SOCKET": "/run/toolcell/daemon.sock"})
        assert account.run("call", "t_who").stdout.split() == [str(account.uid), str(account.project)]
        seen = Path("/proc", shown("toolcelld.service", "MainPID"), "root")
        assert [*(seen / "root").iterdir(), *(seen / "home").iterdir()] == []
        assert account.run("call", "t_write", "path=inside").stdout == "written\n"
        assert account.run("call", "t_write", "path=/srv/outside", code=1)
        strict = {name: state for name, state in account.findings().items() if name in ("strict", "baseline")}
        root("systemctl", "stop", "toolcelld.service")
        ada_has = {
            name: state for name, state in _without_a_service(ada).items() if name in ("strict", "baseline")
        }
        assert strict == ada_has
        root("systemctl", "start", "toolcelld.service")
        assert account.run("call", "t_who").stdout.split()[0] == str(account.uid)
        ada.run("status", "--socket", "/run/toolcell/daemon.sock", code=69)  # nobody else gets there
        said = service("uninstall", "--system").stdout
        assert said == f"{UNITS / 'toolcelld.service'} is removed.\n"
        assert not (UNITS / "toolcelld.service").exists()
    finally:
        print(root("journalctl", "--no-pager", "--unit", "toolcelld.service", code=None).stdout)
        service("uninstall", "--system", code=None)
        root("userdel", "--force", "toolcell", code=None)


def _without_a_service(ada: Person) -> dict[str, str]:
    root("systemctl", "start", f"user-runtime-dir@{ada.uid}.service")
    found = ada.findings()
    ada.run("stop", code=None)
    return found


def test_only_root_installs_a_service_of_the_machine_and_for_users_that_there_are(ada: Person) -> None:
    said = ada.run("service", "install", "--user", "ada", code=1).stderr
    assert "Only root" in said
    assert "service install --user ada" in said
    assert not (UNITS / "toolcelld@.service").exists()
    for name in ("root", "nobody-of-this-name", "ada\nWantedBy=x", "%i", "../ada", ""):
        assert service("install", "--user", name, code=1).stderr
    assert not (UNITS / "toolcelld@.service").exists()
    assert service("install", "--user", "ada", "--system", code=2).stderr


def test_a_unit_of_somebody_else_stays_as_it_is(ada: Person) -> None:
    own = "[Service]\nExecStart=/bin/true\n"
    file = UNITS / "toolcelld@.service"
    file.write_text(own)
    for word in ("install", "uninstall"):
        assert "was not written by this command" in service(word, "--user", "ada", code=1).stderr
        assert file.read_text() == own
    file.unlink()


def test_the_files_of_the_distribution_are_those_of_this_tree() -> None:
    for name in ("system.conf", "template.conf"):
        shipped = Path(sys.prefix) / "share" / "toolcell" / "systemd" / name
        assert shipped.read_text() == (ROOT / "systemd" / name).read_text()
