"""The table of profiles in docs/security.md says what a tool finds in a cell of each."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, make_daemon
from tests.hostile.guard import GUARDED

__all__ = ["make_daemon"]

pytestmark = pytest.mark.anyio

PAGE: Final = Path(__file__).parents[2] / "docs/security.md"
PROFILES: Final = ("none", "baseline", "strict")
LOOK: Final = """
import json, os, resource, socket
from toolcell import tool

def status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\\n").split(":\\t", 1) for line in file if ":\\t" in line)

def works(action) -> bool:
    try:
        action()
    except OSError:
        return False
    return True

@tool
def look(outside: str, pids: str) -> str:
    own = status()
    return json.dumps({
        "resource limits": resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) and own["NoNewPrivs"] == "1"
            and int(own["CapEff"], 16) == 0 and "OUTSIDE" not in os.environ,
        "files and network": own["Seccomp"] == "2" and not works(lambda: open(outside + "/new", "w").close()),
        "separate namespaces": os.readlink("/proc/self/ns/pid") != pids and not works(lambda: os.listdir(outside)),
        "protected places": not works(lambda: open(".mcp.json", "a").close()),
        "protected names": not works(lambda: os.makedirs("deep/er/.vscode")),
    })

@tool(network=["example.org"])
def some_hosts(port: int) -> bool:
    return works(lambda: socket.create_connection(("127.0.0.1", port), timeout=5).close())
"""


def rows() -> dict[str, tuple[str, ...]]:
    """The cells of the table by the beginning of their row."""
    lines = PAGE.read_text().partition("## Profiles")[2].partition("\n\nAn engine")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    head, *body = cells
    assert tuple(cell.strip("`") for cell in head[1:]) == PROFILES
    return {what: tuple(said) for what, *said in body}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_tool_finds_what_the_table_says_of_its_profile(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path, profile: str
) -> None:
    if not GUARDED and profile == "baseline":
        pytest.skip("what the table says of baseline needs a guard")
    daemon = make_daemon(config=f'trust = "all"\n[defaults]\nsandbox = "{profile}"\n')
    daemon.environment["OUTSIDE"] = "the daemon's own"
    daemon.start()
    daemon.tool("look", LOOK)
    (daemon.project / ".mcp.json").write_text("{}")
    outside = tmp_path / "outside"
    outside.mkdir()
    async with daemon.connect() as session:
        outcome = await session.call(
            "look", {"outside": str(outside), "pids": os.readlink("/proc/self/ns/pid")}
        )
        assert outcome.ok, outcome.message
        found = json.loads(outcome.text)
        with socket.create_server(("127.0.0.1", 0)) as server:
            hosts = await session.call("look_some_hosts", {"port": server.getsockname()[1]})
    found["network to some hosts only"] = hosts.ok and hosts.text == "false"

    said = rows()
    assert said.pop("requires")
    for what, cells in said.items():
        (key,) = (key for key in found if what.startswith(key))
        assert found.pop(key) is (cells[PROFILES.index(profile)] == "yes"), what
    assert found == {}, "a row is missing"
    assert not os.path.exists(outside / "new") or profile == "none"
