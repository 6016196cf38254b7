"""Attacks by tools that were granted a network: on the host with the whole of it, and beyond a list of hosts.

Under `none` the attacks with the whole network that need no privilege succeed, which proves that they can.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.daemons import RunningDaemon, kept, renewed
from tests.hostile.network_attacks.with_the_network import ATTACKS

from toolcell.client import Kind, Outcome, connect

pytestmark = [pytest.mark.anyio, pytest.mark.as_root, pytest.mark.xdist_group("network attacks")]

PLACE: Final = Path(__file__).parent / "network_attacks"
HOSTS: Final = "127.0.0.1 localhost home.test granted.test\n::1 localhost\n"
UNPRIVILEGED: Final = ("listen_unbound", "bind_port", "listen_by_program", "abstract_socket", "unix_socket")


@pytest.fixture(autouse=True)
def the_world_is_as_before() -> None:
    """The world is checked by the daemon's own check at its end, as `tests/hostile/conftest.py` says."""


@pytest.fixture(scope="module")
def attacked() -> Generator[RunningDaemon]:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        hosts = Path(directory) / "hosts"
        hosts.write_text(HOSTS)
        hosts.chmod(0o644)
        home = Path(directory) / "d"
        home.mkdir(mode=0o700)
        own_hosts = Path(__file__).parents[1] / "process" / "own_hosts.py"
        through = [sys.executable, str(own_hosts), str(hosts)]
        with kept(RunningDaemon(home, config='trust = "all"\n', through=through)) as daemon:
            yield daemon


@pytest.fixture
def daemon(attacked: RunningDaemon) -> Generator[RunningDaemon]:
    with renewed(attacked):
        for path in PLACE.glob("*.py"):
            shutil.copy(path, attacked.project / ".toolcell" / "tools")
        yield attacked


@pytest.fixture
def services() -> Generator[tuple[dict[str, Any], Callable[[str], bool]]]:
    """What an attack is told, and whether a service was reached."""
    tag = secrets.token_hex(6)
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as agent,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        abstract.bind(f"\0{tag}")
        agent.bind(f"{directory}/agent")
        for each in (abstract, agent, tcp):
            each.setblocking(False)
            each.listen()
        port = free.getsockname()[1]
        free.close()
        listening = {"abstract": abstract, "agent": agent, "tcp": tcp}

        def reached(name: str) -> bool:
            try:
                listening[name].accept()[0].close()
            except BlockingIOError:
                return False
            return True

        yield (
            {"abstract": tag, "agent": f"{directory}/agent", "port": tcp.getsockname()[1], "free_port": port},
            reached,
        )


Services = tuple[dict[str, Any], Callable[[str], bool]]


async def call(daemon: RunningDaemon, tool: str, **arguments: Any) -> Outcome:
    async with connect(daemon.socket, daemon="running", directory=daemon.project) as session:
        return await session.call(tool, arguments)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_the_network_of_the_host_is_for_connections_of_its_own(
    daemon: RunningDaemon, services: Services, sandbox: str, name: str
) -> None:
    if sandbox == "none" and name not in UNPRIVILEGED:
        pytest.skip("it would change this machine, or only root could")
    daemon.configure(f'[tool.with_the_network]\nsandbox = "{sandbox}"\nnetwork = true\n')
    outcome = await call(daemon, "with_the_network", name=name, target=services[0])
    if sandbox == "none":
        assert outcome.text.startswith("succeeded"), outcome
    else:
        assert outcome.kind is Kind.tool_error, outcome
        assert not services[1]("abstract")
        assert not services[1]("agent")


def list_of_hosts(daemon: RunningDaemon, *entries: str) -> None:
    hosts = ", ".join(f'"{entry}"' for entry in entries)
    tools = ("connect_by_http", "connect_by_socks", "connect_by_name", "find_sockets", "flood")
    daemon.configure(
        "".join(f'[tool.with_a_list_{tool}]\nsandbox = "strict"\nnetwork = [{hosts}]\n' for tool in tools)
    )


@pytest.mark.sampled("way")
@pytest.mark.parametrize("way", ["http", "socks", "name"])
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "home.test", "granted.test", "127.1", "2130706433", "0x7f000001", "0.0.0.0",  # noqa: S104  # refused
        "::1",
        "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
    ],
)  # fmt: skip
async def test_a_list_of_hosts_leads_to_no_service_of_the_host(
    daemon: RunningDaemon, services: Services, way: str, host: str
) -> None:
    port = services[0]["port"]
    # The granted name leads to the loopback by the hosts file, as a name server could have it; patterns mean no address.
    list_of_hosts(daemon, f"granted.test:{port}", f"*.0.0.1:{port}", f"*.1:{port}")
    asked = f"[{host}]" if way == "http" and ":" in host else host
    outcome = await call(daemon, f"with_a_list_connect_by_{way}", host=asked, port=port)
    assert outcome.kind in (Kind.ok, Kind.tool_error), outcome
    assert not services[1]("tcp")


async def test_a_cell_keeps_no_socket_of_its_network(daemon: RunningDaemon, services: Services) -> None:
    list_of_hosts(daemon, "granted.test:5432")
    outcome = await call(daemon, "with_a_list_find_sockets")
    assert outcome.ok, outcome
    found = outcome.text.splitlines()
    assert found
    assert "AF_INET" not in outcome.text
    assert len(outcome.text.split("AF_UNIX")) - 1 <= 2, outcome.text  # protocol and abort


async def test_a_flood_of_questions_and_connections_stops_neither_the_daemon_nor_fills_its_log(
    daemon: RunningDaemon, services: Services
) -> None:
    list_of_hosts(daemon, "granted.test:5432")
    target = {**services[0], "port": 5432}
    async with connect(daemon.socket, daemon="running", directory=daemon.project) as session:
        flooding = session.call("with_a_list_flood", {"seconds": 2.0, "target": target})
        outcomes = [await session.call("with_a_list_find_sockets", {}) for _ in range(5)]
        outcome = await flooding
    assert all(each.ok for each in outcomes)
    assert outcome.text == "flooded", outcome
    assert len(outcome.facts.refused_hosts) == 16
    assert daemon.log.read_text().count("n1") < 50
