"""What docs/agents/mcp.md says is so: its commands are run, its files and figures are the code's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.adapters.http import auth, server
from toolcell.adapters.mcp import http_sessions, resources, tool_call
from toolcell.adapters.mcp.host import limits as host_limits
from toolcell.cli.adapters.mcp_install.hosts import HOSTS

PAGE = (Path(__file__).parents[2] / "docs" / "agents" / "mcp.md").read_text()
SECONDS_MAX = 30


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    return [
        line.removeprefix("$ ").partition("#")[0].strip() for line in block.splitlines() if line[:2] == "$ "
    ]


def shell(line: str, daemon: RunningDaemon, home: Path) -> subprocess.CompletedProcess[str]:
    """A line as a person types it, with the command of this environment."""
    return subprocess.run(
        ["bash", "-c", line],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "TOOLCELL_SOCKET": daemon.socket,
        },
        cwd=home / "my" / "project",
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.fixture
def home(daemon: RunningDaemon) -> Path:
    """A home with a project, where the daemon's tools may be."""
    home = daemon.directory / "home"
    (home / "my" / "project").mkdir(parents=True)
    return home


def test_five_minutes_are_as_they_say(daemon: RunningDaemon, home: Path) -> None:
    first, *_ = blocks("console")
    install, change, init, tools, told = commands(first)
    assert install == "pip install '.[mcp]'"  # it is
    assert change == "cd ~/my/project"
    done = shell(f"{change} && {init} && {tools} && {told}", daemon, home)
    assert done.returncode == 0, done.stderr
    assert "hello (local)" in done.stdout
    printed = json.loads(done.stdout[done.stdout.index('{\n  "mcpServers"') :])
    (shown,) = map(json.loads, blocks("json"))
    entry = printed["mcpServers"]["toolcell"]
    assert entry == {**shown["mcpServers"]["toolcell"], "command": entry["command"]}
    assert Path(entry["command"]).name == shown["mcpServers"]["toolcell"]["command"]


def test_the_server_over_http_says_what_the_page_says(daemon: RunningDaemon, home: Path) -> None:
    _, block = blocks("console")
    (command,) = commands(block)
    said = block.splitlines()[1:]
    with subprocess.Popen(
        ["bash", "-c", f"exec {command.replace('8137', '0')}"],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "TOOLCELL_SOCKET": daemon.socket,
        },
        cwd=home / "my" / "project",
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().rstrip("\n") for _ in said]
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
    found = [re.sub(r":\d+/mcp", ":8137/mcp", line).replace(str(home), "/home/you") for line in lines]
    assert found == said
    assert (home / ".local/state/toolcell/mcp.token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", HOSTS)
def test_the_files_of_the_hosts_are_those_of_the_page(name: str) -> None:
    ((file, rest),) = re.findall(rf"^\| `{name}` \| `~/([^`]+)`(.*)$", PAGE, re.MULTILINE)
    assert HOSTS[name].files({"HOME": "/home/you"})[0] == f"/home/you/{file}"
    *_, variable, project, _ = rest.split("|")
    assert tuple(re.findall("`([^`]+)`", project)) == HOSTS[name].project
    for moved in re.findall("`([^`]+)`", variable):
        place = HOSTS[name].files({"HOME": "/home/you", moved: "/else"})[0]
        assert place == "/else" if moved.endswith("_PATH") else place.startswith("/else/")


def test_the_figures_are_those_of_the_code() -> None:
    for said in (
        f"A body has at most {auth.BODY_BYTES_MAX // 2**20} MiB and {auth.BODY_SECONDS:g} s",
        f"a head {server.HEAD_BYTES_MAX // 2**10} KiB and {server.HEAD_SECONDS:g} s",
        f"at most {server.CONNECTIONS_MAX} connections, {http_sessions.SESSIONS_MAX} sessions",
        f"a sign of life every {tool_call.HEARTBEAT_SECONDS:g} s",
        f"{host_limits.limits_of('copilot').get('output_bytes'):,} bytes for Copilot",
        f"{host_limits.limits_of('codex').get('output_bytes'):,} bytes for Codex",
        f"One read has at most {resources.READ_BYTES_MAX // 2**10} KiB",
        "{output_bytes:,} bytes and {output_lines} lines for Qwen".format(**host_limits.limits_of("qwen")),
        "{output_bytes:,} bytes and {output_lines} lines for OpenCode".format(
            **host_limits.limits_of("opencode")
        ),
        f"{host_limits.limits_of('claude').get('output_bytes'):,} bytes for Claude",
    ):
        assert said in PAGE
    assert http_sessions.IDLE_SECONDS == 1800
    assert "half an hour without a request" in PAGE
