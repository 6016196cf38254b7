"""`/etc/toolcell/config.toml` itself, laid over that of this machine in a mount namespace: real daemons are held to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SECONDS_MAX = 120
MOUNT = 'mount -t overlay overlay -o "lowerdir=$1:/etc" /etc && shift && exec "$@"'

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts over /etc, and has files in it")

TOOL = """
from toolcell import tool

@tool
def t(path: str) -> str:
    try:
        return open(path).read()
    except OSError as error:
        return f"refused: {type(error).__name__}"
"""

OPTIONS = """
import asyncio, json
from toolcell.client import Limits, connect

questions = []

async def always(ask):
    questions.append(ask.call.tool)
    return "always"

async def main():
    said = []
    wide = ["*", "both_denied", "project/both_denied", "@exec", "[a-z]*"]
    for options in (
        {"allow": wide, "ask": always, "limits": Limits(timeout=60), "services": {"both_denied": always}, "linger": 60},
        {"agent": "cli", "at_once": True},
    ):
        async with connect(daemon="private", **options) as session:
            said.append("both_denied" in session.catalog.tools)
            for tool in ("both_denied", "both_asked", "both_asked"):
                outcome = await session.call(tool, {}, agent_name="main", session_id="t")
                said.append([outcome.kind, outcome.message])
    print(json.dumps([said, questions]))

asyncio.run(main())
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program where /etc/toolcell has what `system` says."""
    above = tmp_path / "etc"
    (above / "toolcell").mkdir(parents=True)
    for name in ("home", "run", "work"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "work" / ".toolcell" / "tools").mkdir(parents=True)
    (tmp_path / "work" / ".toolcell" / "tools" / "t.py").write_text(TOOL)
    (tmp_path / "home" / "secret").write_text("open")

    def run(
        *words: str, system: str, mode: int = 0o755, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        (above / "toolcell" / "config.toml").write_text(system)
        (above / "toolcell").chmod(mode)
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(above), sys.executable, "-P", "-m", *words],
            cwd=tmp_path / "work",
            env={
                "PATH": os.defpath,
                "HOME": str(tmp_path / "home"),
                "XDG_RUNTIME_DIR": str(tmp_path / "run"),
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    if run("platform", system="").returncode:
        pytest.skip("this kernel does not lay one directory over another")
    return run


@pytest.mark.slow
def test_a_daemon_is_held_whatever_its_user_says(run: Run, tmp_path: Path) -> None:
    loose = tmp_path / "loose.toml"
    loose.write_text("trust = 'all'\n[defaults]\nsandbox = 'none'\n[tool.t]\nsandbox = 'none'\n")
    secret = tmp_path / "home" / "secret"
    environment = {"TOOLCELL_CONFIG": str(loose)}
    call = ("toolcell.cli", "call", "t", f"path={secret}", "--private")
    done = run(*call, system="", environment=environment)
    assert (done.stdout, done.returncode) == ("open\n", 0), done
    done = run(*call, system="[enforce]\nsandbox = 'baseline'\n", environment=environment)
    assert done.stdout.startswith("refused: "), done
    done = run(*call, system="[enforce]\ntrust = 'ask'\n", environment=environment)
    assert (done.returncode, "is not trusted" in done.stderr) == (3, True), done


@pytest.mark.slow
def test_no_option_of_a_session_and_no_answer_loosens_a_rule_of_root(run: Run, tmp_path: Path) -> None:
    tools = tmp_path / "work" / ".toolcell" / "tools"
    both = "".join(f"@tool\ndef {name}() -> str:\n    return 'ran'\n\n" for name in ("denied", "asked"))
    (tools / "both.py").write_text(f"from toolcell import tool\n\n{both}")
    loose = tmp_path / "loose.toml"
    loose.write_text(
        "trust = 'all'\n[permissions]\n'*' = 'allow'\nboth_denied = 'allow'\n'project/*' = 'allow'\n"
    )
    (tmp_path / "options.py").write_text(OPTIONS)
    environment = {"TOOLCELL_CONFIG": str(loose), "PYTHONPATH": str(tmp_path)}
    free = run("options", system="", environment=environment)
    said, questions = json.loads(free.stdout)
    assert [one[0] for one in said if one not in (True, False)] == ["ok"] * 6, free
    held = run(
        "options",
        system="[enforce.permissions]\nboth_denied = 'deny'\nboth_asked = 'ask'\n",
        environment=environment,
    )
    said, questions = json.loads(held.stdout)
    offered, denied, first, again, offered_too, denied_too, unasked, unasked_again = said
    assert (offered, offered_too) == (False, False), said
    for refused in (denied, denied_too, unasked, unasked_again):
        assert refused[0] == "refused", said
        assert "[enforce.permissions]" in refused[1], said
        assert "config set" not in refused[1], "no setting of the user would change it"
    assert (first[0], again[0], questions) == ("ok", "ok", ["both_asked"]), (
        "a person has said always, for this session"
    )


@pytest.mark.slow
@pytest.mark.parametrize("base", ["baseline", "auto"])
def test_a_link_below_what_root_lets_profiles_open_leads_nowhere(run: Run, tmp_path: Path, base: str) -> None:
    home = tmp_path / "home"
    (home / "data" / "real").mkdir(parents=True)
    (home / "data" / "real" / "file").write_text("mine")
    (home / "data" / "link").symlink_to(home)
    (home / "data" / "secret").symlink_to(home / "secret")
    enforced = f"[enforce]\nreadable = ['{home}/data']\n"

    def called(system: str, path: str, *names: str) -> str:
        opened = [str(home / "data" / name) for name in names]
        (tmp_path / "user.toml").write_text(
            f"trust = 'all'\n[profile.mine]\nbase = '{base}'\nreadable = {opened}\n[defaults]\nsandbox = 'mine'\n"
        )
        done = run(
            *("toolcell.cli", "call", "t", f"path={home}/data/{path}", "--private"),
            system=system,
            environment={"TOOLCELL_CONFIG": str(tmp_path / "user.toml")},
        )
        return done.stdout + done.stderr

    assert called(enforced, "real/file", "real") == "mine\n"
    for name, path in (("link", "link/secret"), ("secret", "secret")):
        assert called("", path, name).startswith("open\n")
        assert "open\n" not in (said := called(enforced, path, name)), said
        assert "refused: " in said or "symbolic links" in said, said


@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize("words", [(), ("--config", "/dev/null")])
def test_a_daemon_does_not_start_while_others_can_write_roots_file(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = run("toolcelld", "--state", str(tmp_path / "state"), *words, system="", mode=0o777)
    assert done.returncode == 78, done
    assert "/etc/toolcell can be written by every user" in done.stderr
    assert "chown root /etc/toolcell" in done.stderr


def test_the_command_shows_and_refuses(run: Run) -> None:
    system = "[enforce]\nsandbox = 'strict'\n"
    done = run("toolcell.cli", "config", "set", "tool.t.sandbox", "none", system=system)
    assert done.returncode == 1, done
    assert "is more than [enforce] sandbox in /etc/toolcell/config.toml allows" in done.stderr
    assert run("toolcell.cli", "config", "set", "defaults.sandbox", "none", system="").returncode == 0
    done = run("toolcell.cli", "config", "show", system=system)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('sandbox = "none"'))
    assert line.endswith("config.toml:2; no more than [enforce] sandbox in /etc/toolcell/config.toml:2")
