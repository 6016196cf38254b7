"""What monitoring systems read of a daemon: figures that are right, in formats that their parsers take, and nothing to steer."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.daemons import RunningDaemon
from tests.ports import port_to_bind
from tests.process.test_mcp_servers import PLAIN, entry, text_of
from tests.references.monitoring import ALERTS, PANELS, Alert, alerts, dashboard

from toolcell.client import Kind
from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]

TOOLS = """
import os, signal
from toolcell import tool

@tool
def works() -> str:
    return "works"

@tool
def fails() -> str:
    raise ValueError("no")

@tool
def dies() -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
"""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass
class Metrics:
    """The HTTP server of a daemon, on a unix socket or a port."""

    address: str

    def connected(self) -> socket.socket:
        if self.address.startswith("/"):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(30)
            connection.connect(self.address)
            return connection
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def raw(self, request: bytes) -> bytes:
        with self.connected() as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def get(
        self, path: str = "/metrics", *, method: str = "GET", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        client = http.client.HTTPConnection("localhost", timeout=30)
        client.sock = self.connected()
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        text = answer.read().decode()
        client.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}

    def samples(self) -> dict[tuple[str, frozenset[str]], float]:
        """By name and the values of the labels."""
        return {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(self.get()[1])
            for sample in family.samples
        }


@pytest.fixture
def metrics(
    request: pytest.FixtureRequest, make_daemon: Callable[[], RunningDaemon]
) -> tuple[RunningDaemon, Metrics]:
    daemon = make_daemon()
    address = (
        str(daemon.directory / "m.sock")
        if getattr(request, "param", "socket") == "socket"
        else f"127.0.0.1:{port_to_bind()}"
    )
    daemon.config.write_text(f'{daemon.config.read_text()}\n[metrics]\nlisten = "{address}"\n')
    daemon.start()
    return daemon, Metrics(address)


@pytest.mark.slow
async def test_calls_deaths_and_the_state_are_counted(metrics: tuple[RunningDaemon, Metrics]) -> None:
    daemon, server = metrics
    daemon.tool("several", TOOLS)
    async with daemon.connect() as session:
        for _ in range(3):
            assert (await session.call("several_works")).text == "works"
        assert (await session.call("several_fails")).kind is Kind.TOOL_ERROR
        assert (await session.call("several_dies")).kind is Kind.CRASHED
        found = server.samples()
        assert found["toolcell_sessions", frozenset()] == 1
    assert found["toolcell_calls_total", frozenset({"several_works", "ok"})] == 3
    assert found["toolcell_calls_total", frozenset({"several_fails", "tool_error"})] == 1
    assert found["toolcell_calls_total", frozenset({"several_dies", "crashed"})] == 1
    assert found["toolcell_call_run_seconds_count", frozenset()] == 5
    assert found["toolcell_call_queue_seconds_count", frozenset()] == 5
    assert found["toolcell_worker_deaths_total", frozenset({"SIGSEGV"})] == 1
    assert found["toolcell_worker_deaths_total", frozenset({"memory"})] == 0
    assert found["toolcell_workers", frozenset({"idle"})] <= 1
    assert found["process_open_fds", frozenset()] > 3
    assert found["toolcell_workers_resident_memory_bytes", frozenset()] >= 0


@pytest.mark.slow
async def test_servers_have_figures_of_their_own(metrics: tuple[RunningDaemon, Metrics]) -> None:
    daemon, server = metrics
    shutil.copy(PLAIN, daemon.project / "plain.py")
    daemon.config.write_text(daemon.config.read_text() + entry(options="concurrency = 7"))
    daemon.reload()
    async with daemon.connect() as session:
        await text_of(session, "plain_pid")
        found = server.samples()
    name = frozenset({"plain"})
    assert found["toolcell_mcp_server_processes", name] == 1
    assert found["toolcell_mcp_server_places", name] == 7
    assert found["toolcell_mcp_server_calls", name] == 0


@pytest.mark.slow
async def test_both_formats_are_what_their_strict_parsers_take(
    metrics: tuple[RunningDaemon, Metrics],
) -> None:
    daemon, server = metrics
    daemon.tool("several", TOOLS)
    async with daemon.connect() as session:
        await session.call("several_works")
    _, text, headers = server.get(accept=OPENMETRICS)
    assert headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics.text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    _, plain, headers = server.get()
    assert headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(plain))
    assert {"toolcell_calls", "toolcell_build_info", "toolcell_event_loop_lag_seconds"} <= names
    for family in families:
        assert family.documentation, family.name
        assert re.fullmatch(r"(toolcell|process)_[a-z_]+", family.name)


@pytest.mark.slow
async def test_health_is_told_without_a_token(metrics: tuple[RunningDaemon, Metrics]) -> None:
    _, server = metrics
    assert server.get("/healthz")[:2] == (200, "ok\n")
    assert server.get("/readyz")[:2] == (200, "ok\n")
    assert server.get("/metrics", method="HEAD")[1] == ""


HOSTILE = {
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": b"405",
    b"DELETE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n": b"405",
    b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
    b"GET //metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
    b"GET /metrics\r\n\r\n": b"400",
    b"GET  /metrics HTTP/1.1\r\n\r\n": b"400",
    b"\xff\xfe\x00\r\n\r\n": b"400",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": b"400",
    b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 9000 + b"\r\n\r\n": b"431",
    b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n": b"431",
    b"G" * 200_000: b"431",
}


@pytest.mark.sampled("metrics")
@pytest.mark.slow
@pytest.mark.parametrize("metrics", ["socket", "port"], indirect=True)
async def test_what_is_no_such_request_is_refused_and_the_next_is_answered(
    metrics: tuple[RunningDaemon, Metrics],
) -> None:
    _, server = metrics
    for request, status in HOSTILE.items():
        try:
            answer = server.raw(request)
        except (BrokenPipeError, ConnectionResetError):  # closed while more was sent
            assert len(request) > 65536
            continue
        assert answer.startswith(b"HTTP/1.1 " + status) or (not answer and len(request) > 65536), (
            request[:80],
            answer,
        )
    assert server.get("/healthz")[0] == 200


@pytest.mark.sampled("metrics")
@pytest.mark.slow
@pytest.mark.parametrize("metrics", ["socket", "port"], indirect=True)
async def test_a_page_that_was_led_here_by_a_name_of_its_own_reads_nothing(
    metrics: tuple[RunningDaemon, Metrics],
) -> None:
    _, server = metrics
    expected = 200 if server.address.startswith("/") else 421
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example"):
        status, text, _ = server.get(host=host)
        assert status == expected, host
        assert ("toolcell_" in text) == (expected == 200)


@pytest.mark.slow
async def test_connections_that_say_nothing_are_bounded_and_harm_no_call(
    metrics: tuple[RunningDaemon, Metrics],
) -> None:
    daemon, server = metrics
    daemon.tool("several", TOOLS)
    silent = [server.connected() for _ in range(64)]
    try:
        async with daemon.connect() as session:
            assert (await session.call("several_works")).text == "works"
        ended = sum(_is_closed(connection) for connection in silent)
        assert ended >= 32, ended
    finally:
        for connection in silent:
            connection.close()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_names_of_tools_beyond_a_number_share_one() -> None:
    from toolcelld.metrics.figures import OTHER, _bounded  # pyright: ignore[reportPrivateUsage]

    known: set[str] = set()
    assert [_bounded(known, name, 2) for name in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]


@pytest.mark.slow
async def test_an_address_in_use_costs_the_metrics_and_no_call(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon.config.write_text(f'{daemon.config.read_text()}\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
        daemon.start()
        daemon.tool("several", TOOLS)
        async with daemon.connect() as session:
            assert (await session.call("several_works")).text == "works"
    assert "cannot be used" in daemon.log.read_text()


@pytest.mark.parametrize(
    "listen",
    ["0.0.0.0:9464", "192.0.2.1:80", ":9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "/" + "x" * 200],
)
def test_only_addresses_of_this_machine_are_taken(listen: str, tmp_path: Path) -> None:
    from toolcelld.config.load import load
    from toolcelld.config.mistakes import ConfigError

    path = tmp_path / "config.toml"
    path.write_text(f'[metrics]\nlisten = "{listen}"\n')
    with pytest.raises(ConfigError, match=r"metrics\.listen|\[metrics\]"):
        load([str(path)])


@pytest.mark.slow
@pytest.mark.parametrize(("module", "loaded"), [("server", False), ("metrics.figures", True)])
def test_the_library_is_loaded_where_metrics_are_wanted_alone(module: str, *, loaded: bool) -> None:
    program = f"import sys, toolcelld.{module}; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == loaded


@pytest.mark.slow
async def test_the_dashboard_and_the_alerts_name_what_there_is(
    metrics: tuple[RunningDaemon, Metrics],
) -> None:
    _, server = metrics
    names = {"up"}
    for family in text_string_to_metric_families(server.get()[1]):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    expressions = [query for panel in PANELS for query, _ in panel.queries] + [
        alert.expression for alert in ALERTS
    ]
    for expression in expressions:
        named = set(re.findall(r"\b(?:toolcell|process)_\w+|\bup\b", expression))
        assert named, expression
        assert named <= names, named - names
    shown = {name for expression in expressions for name in names if name in expression}
    assert not {name for name in names - shown if name.startswith("toolcell_")} - WITHOUT_A_PANEL


WITHOUT_A_PANEL = {"toolcell_build_info", "toolcell_start_time_seconds"}
"""They say which daemon it is, and no more."""


def test_the_files_of_the_dashboard_and_the_alerts_are_those_of_the_tables() -> None:
    docs = ROOT / "docs"
    assert json.loads((docs / "monitoring" / "dashboard.json").read_text()) == dashboard()
    assert json.loads((docs / "monitoring" / "alerts.yml").read_text()) == alerts()
    assert list(runbooks()) == [alert.name for alert in ALERTS]


def runbooks() -> dict[str, str]:
    """The sections of the alerts, by name."""
    _, *sections = re.split(
        r"^#### (Toolcell\w+)$", (ROOT / "docs" / "operations.md").read_text(), flags=re.MULTILINE
    )
    return dict(zip(sections[::2], (text.partition("\n## ")[0] for text in sections[1::2]), strict=True))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_says_what_its_alert_means_how_to_look_and_what_to_do(alert: Alert) -> None:
    means, look, do = re.findall(r"^- \*\*(?:Means|Look|Do):\*\* (.+)$", runbooks()[alert.name], re.MULTILINE)
    assert "`toolcell " in look
    assert "`" in do
    bound = re.search(r"> ([0-9.]+)$", alert.expression)
    windows = re.findall(r"increase\(.*\[(\d+)m\]", alert.expression)
    for figure in [*windows, *([alert.minutes] if alert.minutes else []), *(bound.groups() if bound else ())]:
        assert figure == "0" or re.search(rf"(?<![\d.]){figure}(?![\d])", means), (figure, means)


@pytest.mark.slow
async def test_a_daemon_that_drains_is_not_ready(metrics: tuple[RunningDaemon, Metrics]) -> None:
    daemon, server = metrics
    async with daemon.operate() as operator:
        for off in (False, True):
            assert [each async for each in operator.watch(operator.operator.Drain, op.DrainRequest(off=off))]
            assert server.get("/readyz")[:2] == ((200, "ok\n") if off else (503, "draining\n"))
            assert server.get("/healthz")[0] == 200
