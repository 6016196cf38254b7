"""The real Prometheus, of Debian's package, reads a daemon under load, and alerts are raised by their causes.

`make test-prometheus` fetches it. The windows of the rules are shortened from minutes to seconds, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, prlimit
from typing import Any, Final

import pytest
from tests.daemons import RunningDaemon, open_descriptors
from tests.ports import port_to_bind
from tests.process.test_metrics import TOOLS, Metrics
from tests.references.monitoring import ALERTS, alerts

from toolcell.client import Kind, Session
from toolcell_proto.v1 import operator_pb2 as op

PROGRAMS: Final = os.environ.get("TOOLCELL_PROMETHEUS", "")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAMS, reason="Prometheus is not installed: make test-prometheus"),
]
SECONDS_MAX: Final = 120
RULES: Final = str(Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yml")
WINDOWS: Final = {"[5m]": "[15s]", "[10m]": "[60s]"}
DYING: Final = ("one", "two", "three", "four")
"""Files whose workers die; those of one file in a row are started later and later."""
WAITS = """
import time
from toolcell import tool

@tool
def waits() -> None:
    time.sleep(7)
"""
FRESH: Final = """
from toolcell import tool

@tool(isolation="call")
def fresh() -> str:
    return "fresh"
"""
FAULTS: Final = 'sum(toolcell_calls_total{outcome="internal"})'


class Prometheus:
    """A server that scrapes a daemon each second."""

    def __init__(self, port: int) -> None:
        self._at = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._at}/{path}", timeout=30) as answer:  # noqa: S310  # of the loopback
            return json.load(answer)["data"]

    def value(self, query: str) -> float:
        """The first value of a query; -1 where there is none."""
        found = self.ask("query?query=" + urllib.parse.quote(query))["result"]
        return float(found[0]["value"][1]) if found else -1.0

    def firing(self) -> set[str]:
        return {
            alert["labels"]["alertname"]
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.5)


@contextmanager
def scraping(directory: Path, target: str) -> Generator[Prometheus]:
    rules = re.sub(r'"for": "\d+m"', '"for": "0s"', json.dumps(alerts()))
    for window, short in WINDOWS.items():
        rules = rules.replace(window, short)
    (directory / "rules.yml").write_text(rules)
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{directory}/rules.yml]\n"
        f"scrape_configs: [{{job_name: toolcell, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = port_to_bind()
    command = [
        f"{PROGRAMS}/prometheus", f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()


def checked(*words: str, given: str = "") -> str:
    done = subprocess.run(
        [f"{PROGRAMS}/promtool", "check", *words], input=given, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def test_prometheus_reads_a_daemon_and_raises_alerts_by_their_causes(
    make_daemon: Callable[[], RunningDaemon], tmp_path: Path
) -> None:
    daemon, target = make_daemon(), f"127.0.0.1:{port_to_bind()}"
    with daemon.config.open("a") as config:
        config.write(f'\n[daemon]\nworkers = 2\n[metrics]\nlisten = "{target}"\n')
    daemon.start()
    daemon.tool("several", TOOLS)
    for name in DYING:
        daemon.tool(name, TOOLS)
    daemon.tool("w", WAITS)
    daemon.tool("fresh", FRESH)
    with scraping(tmp_path, target) as prometheus:
        async with daemon.connect() as session:
            for _ in range(300):
                assert (await session.call("several_works")).text == "works"
            await until(
                lambda: prometheus.value('toolcell_calls_total{tool="several_works",outcome="ok"}') == 300
            )
            assert "error" not in checked("metrics", given=Metrics(target).get()[1])
            assert f"{len(ALERTS)} rules found" in checked("rules", RULES)
            assert prometheus.firing() == set()
            for alert, cause in CAUSES.items():
                assert alert not in prometheus.firing(), "it is raised by another cause"
                async with cause(daemon, session, prometheus):
                    await until(lambda alert=alert: alert in prometheus.firing())  # type: ignore[misc]
        daemon.stop()
        await until(lambda: "ToolcellDown" in prometheus.firing())
    assert {*CAUSES, "ToolcellDown"} == {alert.name for alert in ALERTS}
    daemon.start()


@asynccontextmanager
async def _crash(_: RunningDaemon, session: Session, __: Prometheus) -> AsyncGenerator[None]:
    for name in DYING * 2:
        assert (await session.call(f"{name}_dies")).kind is Kind.CRASHED
    yield


@asynccontextmanager
async def _quarantine(daemon: RunningDaemon, _: Session, __: Prometheus) -> AsyncGenerator[None]:
    async with daemon.operate() as operator:
        await operator.ask(operator.operator.QuarantineTool, op.QuarantineToolRequest(tool="several_works"))
    yield


@asynccontextmanager
async def _wait(_: RunningDaemon, session: Session, __: Prometheus) -> AsyncGenerator[None]:
    await asyncio.gather(*(session.call("w_waits") for _ in range(8)))
    yield


@contextmanager
def limited(daemon: RunningDaemon, resource: int, most: int) -> Generator[None]:
    """Lower a limit of the daemon, and put it back."""
    before = prlimit(daemon.pid, resource)
    prlimit(daemon.pid, resource, (most, before[1]))
    try:
        yield
    finally:
        prlimit(daemon.pid, resource, before)


@asynccontextmanager
async def _lose_records(daemon: RunningDaemon, session: Session, _: Prometheus) -> AsyncGenerator[None]:
    with limited(daemon, RLIMIT_FSIZE, 1):
        assert (await session.call("one_works")).text == "works"
        yield
    assert (await session.call("one_works")).text == "works"


@asynccontextmanager
async def _use_files_up(daemon: RunningDaemon, _: Session, __: Prometheus) -> AsyncGenerator[None]:
    with limited(daemon, RLIMIT_NOFILE, open_descriptors(daemon.pid) * 11 // 10):
        yield


@asynccontextmanager
async def _starve(daemon: RunningDaemon, session: Session, prometheus: Prometheus) -> AsyncGenerator[None]:
    """Leave no descriptor for new cells: with the cells that are ready used up, each call is a fault of the host."""
    for faults in (1, 4):  # a counter that appears with a number has no rate yet
        with limited(daemon, RLIMIT_NOFILE, 16):
            outcomes = [await session.call("fresh", {}) for _ in range(4)]
        assert outcomes[-1].kind is Kind.INTERNAL, outcomes
        await until(lambda faults=faults: prometheus.value(FAULTS) >= faults)  # type: ignore[misc]
    yield


@asynccontextmanager
async def _freeze(daemon: RunningDaemon, _: Session, __: Prometheus) -> AsyncGenerator[None]:
    for _number in range(3):
        os.kill(daemon.pid, signal.SIGSTOP)
        await asyncio.sleep(2)  # longer than between two looks, so one of them is late
        os.kill(daemon.pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
    yield


CAUSES: Final[
    dict[str, Callable[[RunningDaemon, Session, Prometheus], AbstractAsyncContextManager[None]]]
] = {
    "ToolcellWorkersDie": _crash,
    "ToolcellQuarantine": _quarantine,
    "ToolcellQueue": _wait,
    "ToolcellRecords": _lose_records,
    "ToolcellFiles": _use_files_up,
    "ToolcellFaults": _starve,
    "ToolcellSlow": _freeze,
}
"""What raises each alert for as long as it is entered; `ToolcellDown` is raised by the daemon's end."""
