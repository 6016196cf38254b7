"""MCP servers from PyPI and npm, pinned: through the daemon they are what they are when they are spoken to directly.

Each is installed by `Prepare`, as `toolcell prepare` does, and then started without the network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.daemons import RunningDaemon
from tests.engines import NODE

from toolcell._servers.load import name_of
from toolcell.client import ImageData, Text
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1200)]

UV: Final = str(Path(sys.executable).parent / "uv")
REGISTRIES: Final = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "npm_config_registry", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
"""How this machine reaches the registries, where its environment says."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server, the program that it is when it is installed, and a call of it whose answer depends on nothing else."""

    name: str
    command: tuple[str, ...]
    program: str
    arguments: tuple[str, ...] = ()
    tool: str = ""
    given: Mapping[str, object] = field(default_factory=dict[str, object])


SERVERS: Final = (
    Server(
        "time", ("uvx", "mcp-server-time==2026.10.19"), "environments/environments/*/bin/mcp-server-time", (), "convert_time",
        {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"},
    ),
    Server(
        "git", ("uvx", "mcp-server-git==2026.10.19", "--repository", "${project}"), "environments/environments/*/bin/mcp-server-git",
        ("--repository", "${project}"), "git_status", {"repo_path": "${project}"},
    ),
    Server(
        "memory", ("npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"),
        "packages/*/node_modules/.bin/mcp-server-memory", (), "search_nodes", {"query": "nothing"},
    ),
    Server(
        "thinking", ("npx", "@modelcontextprotocol/server-sequential-thinking@2026.8.31"),
        "packages/*/node_modules/.bin/mcp-server-sequential-thinking", (), "sequentialthinking",
        {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
    ),
)  # fmt: skip


def environment() -> dict[str, str]:
    found = {name: os.environ[name] for name in REGISTRIES if name in os.environ}
    if (certificates := os.environ.get("PIP_CERT")) is not None:
        found = {"SSL_CERT_FILE": certificates, "NODE_EXTRA_CA_CERTS": certificates, **found}
    npm = shutil.which("npm")
    places = [*([os.path.dirname(npm)] if npm else []), str(NODE.parent), os.environ["PATH"]]
    return {**found, "PATH": os.pathsep.join(places)}


def spoken_to(
    command: list[str], directory: Path, tool: str, given: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Speak to a server without the daemon: yield its list of tools, and the result of a call."""
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def request(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            while (answer := json.loads(process.stdout.readline())).get("id") != number:
                pass
            return cast("dict[str, Any]", answer["result"])

        try:
            request(1, "initialize", about)
            process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            yield request(2, "tools/list", {})
            yield request(3, "tools/call", {"name": tool, "arguments": given})
        finally:
            process.kill()


async def prepared(daemon: RunningDaemon) -> dict[str, str]:
    """Install what the project's servers need; return how it stands with each."""
    request = operator_pb2.PrepareRequest(directory=str(daemon.project))
    async with daemon.operate() as client:
        answers = client.watch(client.operator.Prepare, request)
        return {Path(it.path).stem: f"{it.state} {it.message}" async for it in answers}


def make_repository(directory: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(directory)], check=True)


def placed(value: str, project: Path) -> str:
    return value.replace("${project}", str(project))


@pytest.fixture
def daemon(make_daemon: Callable[..., RunningDaemon]) -> Iterator[RunningDaemon]:
    """A daemon that reaches the registries as these tests do."""
    daemon = make_daemon(environment=environment())
    daemon.start()
    yield daemon
    daemon.stop()
    for name in ("environments", "packages"):
        shutil.rmtree(daemon.state / name, ignore_errors=True)


async def test_servers_of_registries_are_as_spoken_to_directly(daemon: RunningDaemon) -> None:
    make_repository(daemon.project)
    sections = (f"[source.{server.name}]\nmcp = {json.dumps(server.command)}\n" for server in SERVERS)
    daemon.config.write_text(f'[environments]\nuv = "{UV}"\n' + "".join(sections))
    daemon.reload()
    states = await prepared(daemon)
    assert {name: state.split()[0] for name, state in states.items()} == {
        server.name: "installed" for server in SERVERS
    }, states
    assert {state.split()[0] for state in (await prepared(daemon)).values()} == {"present"}
    async with daemon.connect() as session:
        await session.described(60)
        assert session.catalog.problems == ()
        for server in SERVERS:
            (program,) = daemon.state.glob(server.program)
            command = [str(program), *(placed(word, daemon.project) for word in server.arguments)]
            command = [str(NODE), *command] if "node_modules" in server.program else command
            given = {
                key: placed(value, daemon.project) if isinstance(value, str) else value
                for key, value in server.given.items()
            }
            listed, returned = spoken_to(command, daemon.project, server.tool, given)
            found = {name: tool for name, tool in session.catalog.tools.items() if tool.scope == server.name}
            assert set(found) == {name_of(server.name, tool["name"]) for tool in listed["tools"]}
            for tool in listed["tools"]:
                ours = found[name_of(server.name, tool["name"])]
                theirs = {key: value for key, value in tool["inputSchema"].items() if key != "$schema"}
                assert ours.input_schema == {"properties": {}, **theirs}
                assert ours.description == tool["description"]
                assert (ours.output_schema is not None) == ("outputSchema" in tool)
            outcome = await session.call(name_of(server.name, server.tool), given)
            texts = [block.text for block in outcome.content if isinstance(block, Text)]
            pictures = [block for block in outcome.content if isinstance(block, ImageData)]
            assert texts == [block["text"] for block in returned["content"] if block["type"] == "text"]
            assert len(pictures) == sum(block["type"] == "image" for block in returned["content"])
            assert outcome.details == returned.get("structuredContent")
            assert outcome.ok is not returned.get("isError", False)
