"""A Ray cluster of the test's own, in a network namespace of its own: a head and nodes on addresses of the loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.scenarios import processes, until

HOST = 11
"""Of the head, in 127.0.0.0/24; each further node has the next one."""
PORT = 6379
STARTED = "Ray runtime started"
TOKEN = "0123456789abcdef0123456789abcdef0123456789abcdef"


@dataclass
class Raylets:
    """The nodes of Ray, by name."""

    programs: Path
    directory: Path
    host: int = HOST
    is_open: bool = False  # it serves strangers
    variables: dict[str, str] = field(default_factory=dict[str, str])  # of the nodes alone
    nodes: dict[str, str] = field(default_factory=dict[str, str])  # addresses
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    @property
    def head(self) -> str:
        """The address of the head."""
        return f"127.0.0.{self.host}"

    @property
    def environment(self) -> dict[str, str]:
        """What speaks with the cluster has."""
        token = {} if self.is_open else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        return {
            **token,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "RAY_ADDRESS": f"{self.head}:{PORT}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_local_fs_capacity_threshold": "0.999",
            "RAY_health_check_failure_threshold": "100",  # one that is frozen for some seconds is there again
        }

    def start(self, name: str, labels: str, *more: str) -> None:
        """Start a node, the first one as the head, and wait until it is there."""
        self.launch(name, labels, *more)
        self.wait(name)

    def launch(self, name: str, labels: str, *more: str) -> None:
        """Begin to start a node."""
        host = f"127.0.0.{self.host + len(self.nodes)}"
        if self.nodes:
            place = [f"--address={self.head}:{PORT}"]
        else:
            place = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        words = [
            *place,
            f"--temp-dir={self.directory / name}",  # nodes that start at the same time in one take the same sockets
            *(f"--node-ip-address={host}", f"--labels=toolcell.dev/node={name},{labels}"),
            *("--num-cpus=2", "--object-store-memory=80000000", "--block", "--disable-usage-stats"),
            *more,
        ]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                [str(self.programs / "ray"), "start", *words],
                env={**self.environment, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # what Ray sends to its group is not for the tests
            )
        self.nodes[name] = host

    def wait(self, name: str) -> None:
        """Wait until a node is there."""
        until(lambda: STARTED in self.log(name) or self.started[name].poll() is not None, name)
        assert STARTED in self.log(name), self.log(name)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def of(self, pattern: str) -> list[int]:
        """The processes with a command line like that."""
        return [number for number, line in processes().items() if re.search(pattern, line)]

    def daemon(self, name: str) -> int:
        (found,) = [
            number
            for number in self.of(rf"toolcelld --socket .*--node {name} ")
            if os.path.exists(f"/proc/{number}/exe")
        ]
        return found

    def raylet(self, name: str) -> list[int]:
        """The raylet of a node."""
        return self.of(rf"raylet/raylet .*--node_ip_address={self.nodes[name]} ")

    def end(self) -> None:
        """End the nodes by their ids; the namespace ends what they leave."""
        for process in reversed(self.started.values()):
            process.send_signal(signal.SIGTERM)
        for process in self.started.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def raylets(made: Raylets) -> Generator[Raylets]:
    """Three nodes: the head and two others, one of which has a GPU."""
    try:
        made.start("n1", "zone=us")
        made.launch("n2", "zone=eu", "--num-gpus=1")
        made.launch("n3", "zone=eu")
        for name in made.nodes:
            made.wait(name)
        yield made
    finally:
        made.end()
