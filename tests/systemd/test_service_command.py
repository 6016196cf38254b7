"""`toolcell service` under a real user manager: the unit is written, started, asked, and removed again.

Runs where there is a user manager for this user, and only where no unit of that name is installed: `make test-systemd`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.systemd.test_user_service import SECONDS_MAX, SOCKET, UNIT, manager, shown

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not os.path.exists(f"{os.environ.get('XDG_RUNTIME_DIR', '')}/systemd/private"),
        reason="no user manager runs for this user; `make test-systemd` boots one",
    ),
]

CONFIG = Path.home() / ".config"
UNIT_FILE = CONFIG / "systemd" / "user" / UNIT
TOOL = "from toolcell import tool\n@tool\ndef hello() -> str:\n    return 'hello'\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    assert "loaded" not in shown("LoadState"), f"{UNIT} is installed for this user; it would be replaced"
    tools = tmp_path / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "hello.py").write_text(TOOL)
    yield tmp_path
    manager("disable", "--now", SOCKET, UNIT, check=False)
    for file in (UNIT_FILE, UNIT_FILE.with_name(SOCKET)):
        file.unlink(missing_ok=True)
    (CONFIG / "toolcell" / "config.toml").unlink(missing_ok=True)
    manager("daemon-reload")
    manager("reset-failed", UNIT, check=False)


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", *words],
        cwd=project,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_the_service_is_installed_with_the_path_of_its_program_and_removed(project: Path) -> None:
    assert run(project, "service", "status").returncode == 69
    for _ in range(2):  # again is no mistake
        done = run(project, "service", "install", "--json")
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["unit"] == str(UNIT_FILE)
    assert f'\nExecStart="{sys.executable}" -P -m toolcelld\n' in UNIT_FILE.read_text()
    assert "/usr/bin/env" not in UNIT_FILE.read_text()
    assert (shown("ActiveState"), shown("UnitFileState")) == ("active", "enabled")
    status = json.loads(run(project, "service", "status", "--json").stdout)
    assert (status["installed"], status["active"], status["pid"]) == (True, True, int(shown("MainPID")))
    assert run(project, "call", "hello").stdout == "hello\n"
    assert json.loads(run(project, "status", "--json").stdout)["pid"] == status["pid"]
    manager("reload", UNIT)
    assert shown("MainPID") == str(status["pid"])
    assert status["socket"] == "running"
    assert run(project, "stop").returncode == 0
    stopped = run(project, "service", "status")
    assert stopped.returncode == 69
    assert "the next connection starts the service" in stopped.stdout
    assert run(project, "call", "hello").stdout == "hello\n"

    done = run(project, "service", "uninstall")
    assert (done.returncode, done.stdout.split()) == (0, [str(UNIT_FILE), "is", "removed."]), done
    assert not UNIT_FILE.exists()
    assert not UNIT_FILE.with_name(SOCKET).exists()
    assert "loaded" not in shown("LoadState")
    assert run(project, "service", "uninstall").stdout == "No service is installed.\n"


def test_a_mistake_in_the_configuration_is_told_by_the_call_and_not_tried_again(project: Path) -> None:
    assert run(project, "service", "install").returncode == 0
    manager("stop", UNIT)
    config = CONFIG / "toolcell" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[daemon]\n\nworkesr = 3\n")
    for _ in range(6):  # more than the unit may be started within a minute
        done = run(project, "call", "hello")
        assert done.returncode == 69, done
        assert f"{config}:3: " in done.stderr
        assert "workesr" in done.stderr
        assert "toolcell config check" in done.stderr
        assert "Job for" not in done.stderr
        assert shown("NRestarts") == "0"
    config.write_text("[daemon]\nworkers = 3\n")
    done = run(project, "call", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done


def test_a_unit_of_somebody_else_stays_as_it_is(project: Path) -> None:
    UNIT_FILE.parent.mkdir(parents=True, exist_ok=True)
    own = "[Service]\nExecStart=/bin/true\n"
    UNIT_FILE.write_text(own)
    for word in ("install", "uninstall"):
        done = run(project, "service", word)
        assert done.returncode == 1, done
        assert "was not written by this command" in done.stderr
        assert UNIT_FILE.read_text() == own
