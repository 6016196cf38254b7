"""`toolcelld --last-good`: a start while the configuration has a mistake, with what it was before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SECONDS_MAX = 90

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "toolcell" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir(mode=0o700)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        """Run a daemon, or a command; what goes on in the background writes to a file."""
        log = tmp_path / "log"
        with log.open("w") as written:
            done = subprocess.run(
                [sys.executable, "-P", "-m", *words],
                env={
                    "PATH": os.defpath,
                    "HOME": str(tmp_path),
                    "XDG_CONFIG_HOME": str(tmp_path / "config"),
                    "XDG_STATE_HOME": str(tmp_path / "state"),
                    "XDG_RUNTIME_DIR": str(tmp_path / "run"),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if "--detach" not in words else written,
                stderr=written,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        done.stderr = log.read_text()
        return done

    return run


BRIEF = ("toolcelld", "--idle-exit", "100ms")


@pytest.mark.slow
def test_a_daemon_starts_with_the_configuration_that_had_no_mistake(
    run: Run, config: Path, tmp_path: Path
) -> None:
    done = run(*BRIEF, "--last-good")
    assert (done.returncode, "no configuration was good yet" in done.stderr) == (78, True), done
    config.write_text("[daemon]\nworkers = 7\n")
    assert run(*BRIEF).returncode == 0
    kept = tmp_path / "state" / "toolcell" / "last-good.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    config.write_text("[daemon]\nworkesr = 8\n")
    done = run(*BRIEF)
    assert done.returncode == 78, done
    assert f"{config}:2: daemon.workesr" in done.stderr
    assert "which had no mistake: toolcelld --last-good" in done.stderr
    done = run("toolcelld", "--last-good", "--detach")
    try:
        assert done.returncode == 0, done
        status = run("toolcell.cli", "status", "--json")
        assert json.loads(status.stdout)["notices"][0].startswith("The configuration is that of ")
        shown = run("toolcell.cli", "status").stdout
        assert "toolcell config check says, then: toolcell reload" in shown
        config.write_text("[daemon]\nworkers = 9\n")
        assert run("toolcell.cli", "reload").returncode == 0
        assert json.loads(run("toolcell.cli", "status", "--json").stdout)["notices"] == []
    finally:
        run("toolcell.cli", "stop")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"files": 3, "paths": [], "written": 1}',
        '{"files": {"/x": 3}, "paths": ["/x"], "written": 1}',
        '{"files": {"/x": "[enforce]"}, "paths": ["/x"], "written": 1}',
        "x" * 3_000_000,
    ],
)
@pytest.mark.slow
def test_what_is_kept_and_cannot_be_used_starts_nothing(run: Run, tmp_path: Path, text: str) -> None:
    kept = tmp_path / "state" / "toolcell" / "last-good.json"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.write_text(text)
    done = run(*BRIEF, "--last-good")
    assert (done.returncode, "Traceback" in done.stderr) == (78, False), done
