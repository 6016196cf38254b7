"""The scenarios of a cluster with the static engine: nodes of a file. Its control plane is Placement itself."""

from __future__ import annotations

import asyncio
import signal
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.scenarios import TENANTS, TOOLS, Engine, Scenarios, lay_out
from tests.process.clusters import Cluster, cluster

NODES: dict[str, dict[str, Any]] = {
    "n1": {"volumes": {"a": "a", "b": "b"}, "labels": {"zone": "us"}},
    "n2": {"volumes": {"a": "a", "b": "b"}, "labels": {"zone": "eu"}, "resources": {"gpu": 1}},
}


@dataclass
class Static(Engine):
    """Daemons that the tests start, and Placement."""

    running: Cluster

    takes = ("cluster", "a:")
    silent = "placement cannot be reached"
    stopped_seconds = 0

    def volume(self, node: str, name: str) -> Path:
        return self.running.nodes[node].project / name

    def daemon(self, node: str) -> int:
        return self.running.nodes[node].pid

    def control(self, number: signal.Signals) -> None:
        assert self.running.process is not None
        if number == signal.SIGKILL:
            self.running.stop(number)
        else:
            self.running.process.send_signal(number)

    def doors(self) -> list[str]:
        return [self.running.address]

    def secrets(self, node: str) -> list[str]:
        state = self.base / "placement"
        daemon = self.running.nodes[node]
        own = [Path(daemon.socket).parent / f"{name}.token" for name in ("agent", "operator")]
        return [str(path) for path in (state / "ca.key", *own, daemon.state / "listen" / "tickets.key")]

    def kill(self, node: str) -> None:
        self.running.nodes[node].stop(signal.SIGKILL)

    async def end_daemon(self, node: str, number: signal.Signals) -> None:
        await asyncio.to_thread(self.running.restart, node, number)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Static]:
    digest = lay_out(tmp_path_factory.mktemp("code") / "a")
    tenants = tomllib.loads(TENANTS.replace("DIGEST", digest))["tenants"]
    with cluster(NODES, source=TOOLS, invite=("alice", "bob"), tenants=tenants) as running:
        engine = Static(running.directory, running)
        engine.join(running.log.read_text)
        yield engine


@pytest.fixture
def engine(shared: Static, monkeypatch: pytest.MonkeyPatch) -> Iterator[Static]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared.base / "client"))
    yield shared
    for daemon in shared.running.nodes.values():
        if daemon.process is not None:
            daemon.settle()
            daemon.check_log()


class TestStatic(Scenarios):
    """With nodes of a file."""
