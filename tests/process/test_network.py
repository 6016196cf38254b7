"""The network of a tool: what is granted works for every client unchanged, and what is not says so."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon, kept, renewed
from tests.ports import silent_port

from toolcell.client import Kind, Outcome, connect
from toolcell_proto.v1 import operator_pb2

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
def secure(host: str, port: int, authority: str | None) -> str:
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
        datagrams.connect((host, port))
        datagrams.settimeout(10)
        datagrams.send(b"hello")
        return datagrams.recv(100).decode()

@tool
def either(host: str, port: int, fail: bool) -> str:
    try:
        if host:
            with socket.create_connection((host, port), timeout=10) as connection:
                connection.recv(1)
    except OSError:
        pass
    if fail:
        raise KeyError("mine")
    return "swallowed"

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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """The test looks at the answers."""


@contextmanager
def web(context: ssl.SSLContext | None = None) -> Generator[int]:
    """A web server on the loopback of the host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def run(command: list[str]) -> None:
    """Run a program of the test, in a process that does not block the loop for long."""
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def named_daemon() -> Generator[RunningDaemon]:
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
def daemon(named_daemon: RunningDaemon) -> Generator[RunningDaemon]:
    with renewed(named_daemon):
        named_daemon.tool("net", TOOLS)
        yield named_daemon


def grant(daemon: RunningDaemon, tool: str, network: bool | list[str], sandbox: str = "strict") -> None:
    daemon.configure(f'[tool.net_{tool}]\nsandbox = "{sandbox}"\nnetwork = {json.dumps(network)}\n')


async def call(daemon: RunningDaemon, tool: str, **arguments: Any) -> Outcome:
    async with connect(daemon.socket, daemon="running", directory=daemon.project) as session:
        return await session.call(f"net_{tool}", arguments)


@pytest.mark.sampled("sandbox")
@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_the_whole_network_is_the_hosts_in_every_profile(daemon: RunningDaemon, sandbox: str) -> None:
    grant(daemon, "fetch", True, sandbox)
    with web() as port:
        outcome = await call(daemon, "fetch", url=f"http://127.0.0.1:{port}/a")
    assert outcome.text == f"hello 127.0.0.1:{port}/a", outcome


@pytest.mark.slow
async def test_a_granted_name_is_reached_by_a_client_that_knows_of_no_proxy(daemon: RunningDaemon) -> None:
    with web() as port:
        grant(daemon, "fetch", [f"web.test:{port}", f"127.0.0.1:{port}"])
        outcome = await call(daemon, "fetch", url=f"http://web.test:{port}/a")
    assert outcome.text == f"hello web.test:{port}/a", outcome


@pytest.mark.slow
async def test_a_pattern_means_every_host_below_its_name(daemon: RunningDaemon) -> None:
    with web() as port:
        grant(daemon, "fetch", [f"*.many.test:{port}", f"localhost:{port}"])
        for name in ("a.many.test", "b.many.test"):
            outcome = await call(daemon, "fetch", url=f"http://{name}:{port}/")
            assert outcome.text == f"hello {name}:{port}/", outcome
        refused = await call(daemon, "fetch", url=f"http://web.test:{port}/")
    assert refused.kind is Kind.tool_error
    assert refused.facts.refused_hosts == ("web.test",)


@pytest.mark.slow
async def test_a_tunnel_of_tls_is_the_clients_own(daemon: RunningDaemon, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=web.test", "-addext", "subjectAltName=DNS:web.test"],
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with web(context) as port:
        grant(daemon, "secure", [f"web.test:{port}", f"127.0.0.1:{port}"])
        outcome = await call(daemon, "secure", host="web.test", port=port, authority=certificate.read_text())
    assert outcome.text.endswith("hello /"), outcome


@pytest.mark.slow
@pytest.mark.parametrize("network", ["hosts", "whole"])
async def test_programs_need_no_proxy_either(daemon: RunningDaemon, tmp_path: Path, network: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    with web() as port:
        granted = [f"web.test:{port}", f"127.0.0.1:{port}"] if network == "hosts" else True
        host = "web.test" if network == "hosts" else "127.0.0.1"
        grant(daemon, "run", granted)
        outcome = await call(daemon, "run", command=[curl, "-sS", "-m10", f"http://{host}:{port}/a"])
    assert outcome.text == f"0 hello {host}:{port}/a", outcome


@pytest.mark.slow
async def test_git_clones_from_a_granted_host(daemon: RunningDaemon, tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git")
    bare = tmp_path / "repository.git"
    run([git, "init", "-q", "--bare", str(bare)])
    run([git, "-C", str(bare), "update-server-info"])

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
            """The test looks at the answers."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            port = server.server_address[1]
            grant(daemon, "run", [f"web.test:{port}", f"127.0.0.1:{port}"])
            address = f"http://web.test:{port}/repository.git"
            outcome = await call(daemon, "run", command=[git, "clone", "-q", address, "/tmp/clone"])
        finally:
            server.shutdown()
            serving.join()
    assert outcome.text.startswith("0 "), outcome


async def test_a_literal_address_is_reached_where_it_is_granted(daemon: RunningDaemon) -> None:
    with web() as port:
        grant(daemon, "fetch", [f"127.0.0.1:{port}"])
        for proxy in (False, True):
            outcome = await call(daemon, "fetch", url=f"http://127.0.0.1:{port}/", proxy=proxy)
            assert outcome.text == f"hello 127.0.0.1:{port}/", outcome


@pytest.mark.slow
async def test_the_proxy_says_in_its_status_what_is_refused(daemon: RunningDaemon) -> None:
    grant(daemon, "fetch", ["web.test"])
    outcome = await call(daemon, "fetch", url="http://127.0.0.2:9/", proxy=True)
    assert outcome.kind is Kind.tool_error
    assert "403" in outcome.text
    assert "127.0.0.2:9 is not granted" in outcome.text
    assert outcome.facts.refused_hosts == ("127.0.0.2:9",)


@pytest.mark.slow
async def test_a_refused_host_is_named_wherever_a_person_or_a_model_looks(daemon: RunningDaemon) -> None:
    grant(daemon, "fetch", ["web.test:8080"])
    outcome = await call(daemon, "fetch", url="http://evil.test/")
    line = 'toolcell config set tool.net_fetch.network \'["web.test:8080", "evil.test"]\''
    assert outcome.kind is Kind.tool_error
    assert outcome.facts.refused_hosts == ("evil.test",)
    assert line in outcome.message
    why = "evil.test is not granted, so it cannot be resolved; the network of this tool is web.test:8080"
    async with daemon.operate() as operator:
        listed = await operator.ask(
            operator.operator.ListCalls, operator_pb2.ListCallsRequest(tool="net_fetch")
        )
        call_id = listed.calls[0].call_id
        found = await operator.ask(operator.operator.GetCall, operator_pb2.GetCallRequest(call_id=call_id))
        story = [line.text for line in found.story]
        request = operator_pb2.TailLogsRequest(tool_or_call=call_id)
        parts = [part async for part in operator.watch(operator.operator.TailLogs, request)]
        logged = [line.text for part in parts for line in part.lines]
    assert f"network: {why}" in story
    assert f"network: {why}" in logged


@pytest.mark.slow
async def test_a_tool_without_a_network_is_told_the_line_that_grants_one(daemon: RunningDaemon) -> None:
    for sandbox in ("strict", "baseline"):
        if sandbox == "baseline":
            daemon.configure(f'[tool.net_fetch]\nsandbox = "{sandbox}"\n')
        outcome = await call(daemon, "fetch", url="http://web.test/")
        assert outcome.kind is Kind.tool_error
        value, all_of_it = ("true", ", which") if sandbox == "baseline" else ("'[\"web.test\"]'", ":")
        assert outcome.text.startswith(
            "This tool has no network, so it cannot reach web.test:80.\n  To grant it" + all_of_it
        )
        assert f"toolcell config set tool.net_fetch.network {value}\n\nURLError: " in outcome.text


@pytest.mark.slow
async def test_what_a_list_of_hosts_cannot_give_says_so(daemon: RunningDaemon) -> None:
    with web() as port:
        grant(daemon, "raw", [f"web.test:{port}", f"127.0.0.1:{port}"])
        grant(daemon, "send", [f"web.test:{port}"])
        other = await call(daemon, "raw", host="web.test", port=1, say="x")
        datagram = await call(daemon, "send", host="web.test", port=port)
    assert other.kind is datagram.kind is Kind.tool_error
    assert "The network of this tool does not include web.test:1.\n" in other.message
    assert f'["web.test:{port}", "127.0.0.1:{port}", "web.test:1"]' in other.message
    assert f"reaches web.test:{port} by TCP, and no other host, port or protocol" in datagram.message


@contextmanager
def closing_at_once() -> Generator[int]:
    """A server that accepts and says nothing that a client of TLS or HTTP expects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(1024)
                        client.sendall(b"no protocol of yours\r\n\r\n")

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


@pytest.mark.slow
async def test_a_granted_host_that_is_down_is_told_as_that_and_not_as_a_refusal(
    daemon: RunningDaemon,
) -> None:
    with silent_port() as down:
        grant(daemon, "fetch", [f"web.test:{down}", f"127.0.0.1:{down}", f"gone.test:{down}"])
        refused = await call(daemon, "fetch", url=f"http://web.test:{down}/")
        unknown = await call(daemon, "fetch", url=f"http://gone.test:{down}/")
        literal = await call(daemon, "fetch", url=f"http://127.0.0.1:{down}/", proxy=True)
    assert refused.text.startswith(
        f"web.test:{down} is granted, but it refuses the connection: nothing listens there.\n"
    )
    assert unknown.text.startswith(f"gone.test:{down} is granted, but its name is not found (")
    assert literal.text.startswith(
        f"127.0.0.1:{down} is granted, but it refuses the connection: nothing listens there."
    )
    for outcome in (refused, unknown, literal):
        assert outcome.kind is Kind.tool_error
        assert "toolcell config set" not in outcome.text, outcome


@pytest.mark.slow
async def test_a_host_that_answers_wrongly_is_told_as_granted_and_connected(daemon: RunningDaemon) -> None:
    with closing_at_once() as port:
        grant(daemon, "secure", [f"web.test:{port}", f"127.0.0.1:{port}"])
        outcome = await call(daemon, "secure", host="web.test", port=port, authority=None)
    assert outcome.text.startswith(
        f"web.test:{port} is granted and was connected to; what failed came after that.\n"
    )
    assert "SSLError" in outcome.text


async def test_a_failure_after_an_attempt_of_an_earlier_call_does_not_name_its_host(
    daemon: RunningDaemon,
) -> None:
    with silent_port() as down:
        grant(daemon, "either", [f"web.test:{down}", f"127.0.0.1:{down}"])
        swallowed = await call(daemon, "either", host="web.test", port=down, fail=False)
    assert swallowed.text == "swallowed", swallowed
    failed = await call(daemon, "either", host="", port=0, fail=True)
    assert failed.text == "KeyError: 'mine'"


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["baseline", "strict"])
async def test_a_tool_with_the_whole_network_listens_only_where_its_profile_says_so(
    daemon: RunningDaemon, sandbox: str
) -> None:
    grant(daemon, "serve", True, sandbox)
    refused = await call(daemon, "serve")
    assert refused.kind is Kind.tool_error
    assert "Permission denied" in refused.text
    text = daemon.config.read_text()
    daemon.config.write_text(
        text.replace('base = "auto"', f'base = "{sandbox}"').replace(
            f'sandbox = "{sandbox}"', 'sandbox = "listening"'
        )
    )
    daemon.reload()
    outcome = await call(daemon, "serve")
    assert outcome.text == "served", outcome


@pytest.mark.slow
async def test_a_cell_with_a_network_of_its_own_may_serve_itself(daemon: RunningDaemon) -> None:
    outcome = await call(daemon, "serve")
    assert outcome.text == "served", outcome
