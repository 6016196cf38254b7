"""A Ray cluster of the test's own, in a network namespace of its own: a head and nodes on addresses of the loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SECONDS_MAX = 400
"""For what takes some seconds on a quiet machine."""
HOST = 11
"""Of the head, in 127.0.0.0/24; each further node has the next one."""
PORT = 6379
STARTED = "Ray runtime started"
TOKEN = "0123456789abcdef0123456789abcdef0123456789abcdef"


def until(found: Callable[[], object], what: str) -> None:
    """Wait for a condition of other processes."""
    deadline = time.monotonic() + SECONDS_MAX
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def processes() -> dict[int, str]:
    """The command lines of all processes of the namespace."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


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
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }

    def start(self, name: str, labels: str, *more: str) -> None:
        """Start a node, the first one as the head."""
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
        until(
            lambda: STARTED in self.log(name), self.log(name)
        )  # one after the other: Ray gives each half a minute

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

    def whole(self, name: str) -> list[int]:
        """The raylet of a node, and all that it has started."""
        parents: dict[int, int] = {}
        for number in processes():
            try:
                parents[number] = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        found = self.of(rf"raylet/raylet .*--node_ip_address={self.nodes[name]} ")
        for each in found:
            found += [number for number, parent in parents.items() if parent == each]
        return found

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
        made.start("n2", "zone=eu", "--num-gpus=1")
        made.start("n3", "zone=eu")
        yield made
    finally:
        made.end()
