"""The network of a tool: what is granted works for every client unchanged, and what is not says so."""

from __future__ import annotations

import http.server
import json
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon, kept, renewed

from toolcell.client import Outcome, connect

pytestmark = pytest.mark.anyio

HOSTS = "127.0.0.1 localhost web.test db.test cache.test a.many.test b.many.test\n::1 localhost\n"
CONFIG = """
trust = "all"

[profile.listening]
base = "{listening}"
network = true
listen = true
"""
TOOLS = """
import os, socket, ssl, subprocess, urllib.request
from toolcell import tool

def plain():
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]

@tool
def fetch(url: str, proxy: bool = False) -> str:
    if not proxy:
        plain()
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()

@tool
def raw(host: str, port: int, say: str) -> str:
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(say.encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile().read()

@tool
def secure(host: str, port: int, authority: str) -> str:
    context = ssl.create_default_context(cadata=authority)
    with socket.create_connection((host, port), timeout=10) as connection:
        with context.wrap_socket(connection, server_hostname=host) as tunnel:
            tunnel.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            return tunnel.makefile().read()

@tool
def run(command: list[str]) -> str:
    plain()
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return f"{done.returncode} {done.stdout}{done.stderr}"

@tool
def send(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"hello", (host, port))
        datagrams.settimeout(2)
        return datagrams.recv(100).decode()

@tool
def serve() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname(), timeout=5):
            return "served"
"""


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"hello {self.headers.get('Host', '')}{self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The test looks at the answers."""


@contextmanager
def web(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A web server on the loopback of the host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def named_daemon() -> Iterator[RunningDaemon]:
    """A daemon that finds the names of `HOSTS`."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        hosts = Path(directory) / "hosts"
        hosts.write_text(HOSTS)
        hosts.chmod(0o644)
        home = Path(directory) / "d"
        home.mkdir(mode=0o700)
        through = [sys.executable, str(Path(__file__).with_name("own_hosts.py")), str(hosts)]
        with kept(RunningDaemon(home, config=CONFIG.format(listening="auto"), through=through)) as daemon:
            yield daemon


@pytest.fixture
def daemon(named_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(named_daemon):
        named_daemon.tool("net", TOOLS)
        yield named_daemon


def grant(daemon: RunningDaemon, tool: str, network: bool | list[str], sandbox: str = "strict") -> None:
    daemon.configure(f'[tool.net_{tool}]\nsandbox = "{sandbox}"\nnetwork = {json.dumps(network)}\n')


async def call(daemon: RunningDaemon, tool: str, **arguments: Any) -> Outcome:
    async with connect(daemon.socket, daemon="running", directory=daemon.project) as session:
        return await session.call(f"net_{tool}", arguments)


@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_the_whole_network_is_the_hosts_in_every_profile(daemon: RunningDaemon, sandbox: str) -> None:
    grant(daemon, "fetch", True, sandbox)
    with web() as port:
        outcome = await call(daemon, "fetch", url=f"http://127.0.0.1:{port}/a")
    assert outcome.text == f"hello 127.0.0.1:{port}/a", outcome


async def test_a_granted_name_is_reached_by_a_client_that_knows_of_no_proxy(daemon: RunningDaemon) -> None:
    with web() as port:
        grant(daemon, "fetch", [f"web.test:{port}", f"127.0.0.1:{port}"])
        outcome = await call(daemon, "fetch", url=f"http://web.test:{port}/a")
    assert outcome.text == f"hello web.test:{port}/a", outcome
