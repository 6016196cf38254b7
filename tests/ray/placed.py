"""Toolcell in a Ray cluster of the tests' own, and what a client does with it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.ray.raylets import SECONDS_MAX, Raylets

from toolcell.client import Kind, Session, Unavailable, connect

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
class Placed:
    """The cluster, and how clients come to it."""

    ray: Raylets
    base: Path

    @property
    def file(self) -> Path:
        return self.base / "placement.toml"

    def command(self, *words: str, ours: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `toolcell`: of the cluster's environment, or of a client's. In a thread where a session is open: a client that
        says nothing for the lease, three seconds, loses it.
        """
        python = sys.executable if ours else str(self.ray.programs / "python")
        clients = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self.base / "client")}
        return subprocess.run(
            [python, "-P", "-m", "toolcell.cli", *words],
            env={**(clients if ours else self.ray.environment), **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def up(self, text: str, *tenants: str) -> None:
        """Start it with this file, and have each tenant join: the first one as the user of the tests."""
        self.file.write_text(textwrap.dedent(text).replace("BASE", str(self.base)))
        self.file.chmod(0o600)
        for volume in ("a", "b"):
            tools = self.base / volume / ".toolcell" / "tools"
            tools.mkdir(parents=True)
            (tools / "t.py").write_text(textwrap.dedent(TOOLS))
            (self.base / volume / "docs").mkdir()
        invites = [word for tenant in tenants for word in ("--invite", tenant)]
        made = self.command("cluster", "up", str(self.file), *invites)
        assert made.returncode == 0, (made, self.ray.log(next(iter(self.ray.nodes))), self.log())
        codes = re.findall(r"toolcell cluster join (\S+) (\S+)", made.stdout)
        for number, code in enumerate(codes):
            more = {"XDG_CONFIG_HOME": str(self.base / f"client-{number}")} if number else {}
            joined = self.command("cluster", "join", *code, ours=True, **more)
            assert joined.returncode == 0, joined

    def log(self) -> str:
        """What Placement has said."""
        log = self.base / "placement" / "placement.log"
        return log.read_text() if log.exists() else ""

    def nodes(self, column: int = 1) -> dict[str, str]:
        """The state of each node, or another column of the list."""
        listed = self.command("cluster", "nodes", ours=True).stdout.splitlines()[1:]
        return {line.split()[0]: line.split()[column] for line in listed}

    def occupied(self) -> list[str]:
        """The nodes that have sessions."""
        return [name for name, sessions in self.nodes(2).items() if not sessions.startswith("0/")]


TOOLS = """
    import os, socket, time
    from toolcell import tool

    @tool
    def where() -> str:
        return os.getcwd()

    @tool
    def ticks(file: str) -> None:
        with open(file, "a", buffering=1) as out:
            out.write("begin\\n")
            while True:
                out.write("tick\\n")
                time.sleep(0.01)

    def seen(port: int, paths: list[str]) -> dict[str, object]:
        found: dict[str, object] = {"variables": [name for name in os.environ if name.startswith(("RAY", "CUDA"))]}
        readable = []
        for path in paths:
            try:
                os.listdir(path) if os.path.isdir(path) else open(path).close()
                readable.append(path)
            except OSError:
                pass
        found["readable"] = readable
        try:
            socket.create_connection(("127.0.0.11", port), timeout=3).close()
            found["port"] = "open"
        except OSError as error:
            found["port"] = type(error).__name__
        return found

    @tool
    def looks(port: int, paths: list[str]) -> dict[str, object]:
        return seen(port, paths)

    @tool(network=True)
    def reaches(port: int, paths: list[str]) -> dict[str, object]:
        return seen(port, paths)
"""


async def called(session: Session, tool: str, arguments: dict[str, object] | None = None) -> str:
    with anyio.fail_after(SECONDS_MAX):
        outcome = await session.call(f"t_{tool}", arguments or {})
    assert outcome.kind is Kind.ok, outcome.message
    return outcome.text


@asynccontextmanager
async def opened(address: str, directory: str) -> AsyncGenerator[Session]:
    """A session of what another one has had a moment ago: Ray gives it back within seconds."""
    async with AsyncExitStack() as stack:
        with anyio.fail_after(SECONDS_MAX):
            while True:
                try:
                    session = await stack.enter_async_context(connect(address, directory=directory))
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
        yield session


async def refused(directory: str, address: str = "cluster") -> str:
    """Why a session is refused that does not wait."""
    address = f"{address}{'&' if '?' in address else '?'}wait=0"
    with pytest.raises(Unavailable) as found:
        async with connect(address, directory=directory):
            pass
    return found.value.message
