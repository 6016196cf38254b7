"""Toolcell in a Ray cluster of the tests' own, as an engine of the scenarios."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.scenarios import SECONDS_MAX, TENANTS, Engine, below, lay_out
from tests.ray.raylets import PORT, Raylets

PROGRAMS = Path(os.environ.get("TOOLCELL_RAY", "")) / "bin"
"""Of the environment with Ray."""
MARKS = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        "TOOLCELL_RAY" not in os.environ,
        reason="TOOLCELL_RAY names no environment with Ray; `make test-cluster`",
    ),
]


@dataclass
class Placed(Engine):
    """The nodes of Ray, and Placement, which has Ray's Python."""

    ray: Raylets

    modules = ("ray",)
    takes = ("cluster?cpu=1", "b:")
    silent = "control plane"
    loses = "cluster?zone=eu"  # not the head's, which ends Ray

    @property
    def file(self) -> Path:
        return self.base / "placement.toml"

    def write(self, text: str) -> None:
        """Write the file of Placement, and make the volumes."""
        digests = {lay_out(self.base / volume) for volume in ("a", "b")}
        text = textwrap.dedent(text) + textwrap.dedent(TENANTS)
        self.file.write_text(text.replace("BASE", str(self.base)).replace("DIGEST", digests.pop()))
        self.file.chmod(0o600)

    def operate(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `toolcell cluster` with the file, in the cluster."""
        do, *more = words
        return subprocess.run(
            [
                str(self.ray.programs / "python"),
                "-P",
                "-m",
                "toolcell.cli",
                "cluster",
                do,
                str(self.file),
                *more,
            ],
            env=self.ray.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def up(self) -> None:
        """Start it, and have its tenants join."""
        made = self.operate("up", "--invite", "alice", "--invite", "bob")
        assert made.returncode == 0, (made, self.ray.log(next(iter(self.ray.nodes))), self.log())
        self.join(lambda: made.stdout)

    def log(self) -> str:
        """What Placement has said."""
        log = self.base / "placement" / "placement.log"
        return log.read_text() if log.exists() else ""

    def volume(self, node: str, name: str) -> Path:
        return self.base / name

    def daemon(self, node: str) -> int:
        return self.ray.daemon(node)

    def whole(self, node: str) -> list[int]:
        return below([self.daemon(node), *self.ray.raylet(node)])

    def control(self, number: signal.Signals) -> None:
        (control,) = self.ray.of("gcs_server ")
        os.kill(control, number)

    def doors(self) -> list[str]:
        return ["127.0.0.1:7443", f"{self.ray.head}:{PORT}"]

    def secrets(self, node: str) -> list[str]:
        (control,) = self.ray.of("gcs_server ")
        states = [str(self.base / each) for each in (node, "nodes", "placement")]
        return [*states, f"/proc/{control}/environ", f"/proc/{control}/fd"]
