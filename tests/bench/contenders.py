"""The ways to run `add(a, b)` that the bench compares, each in processes of its own.

Every contender is an asynchronous context manager whose value calls the function once; a wrong result is an error.
All children compile what they import, and all MCP servers have the same client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import grpc.aio
from tests.bench.servers import ECHO, PING, add
from tests.ports import port_to_bind

from toolcell import _paths
from toolcell.client import Session, connect

__all__ = [
    "CONTENDERS",
    "Call",
    "Contender",
    "environment",
    "mcp_call",
    "mcp_client",
    "served",
    "toolcell_call",
]

Call: TypeAlias = Callable[[int], Awaitable[object]]
Contender: TypeAlias = Callable[[Path], contextlib.AbstractAsyncContextManager[Call]]

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 30.0
TOOLS = '''
from toolcell import tool

@tool{options}
def {name}(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
SCRIPT = """
import { tool } from "@opencode-ai/plugin"

export default tool({
  description: "Add two numbers.",
  args: { a: tool.schema.number().int(), b: tool.schema.number().int() },
  execute: async ({ a, b }) => a + b,
})
"""
LARGE = '''
from toolcell import tool

@tool
def large(size: int) -> str:
    """Return a text of so many characters."""
    return "x" * size
'''


def environment() -> dict[str, str]:
    """The environment of all children: their modules are compiled once, as they are where a package is installed."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), "FASTMCP_LOG_LEVEL": "ERROR"}


@contextlib.contextmanager
def served(
    directory: Path,
    configuration: str = "",
    path: str = "",
    *,
    module: str = "toolcelld",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Generator[str]:
    """Start a daemon with its own state, and a project with the tools `add` and `large`; the value is its socket.

    - `path`: its PATH; empty for that of the bench.
    - `module`: what runs the daemon.
    - `variables`: added to its environment.
    """
    tools = directory / "project" / ".toolcell" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "add.py").write_text(TOOLS.format(options="", name="add"))
    (tools / "large.py").write_text(LARGE)
    (directory / "config.toml").write_text(f'trust = "all"\n{configuration}')
    address = str(directory / "run" / "daemon.sock")
    command = [
        sys.executable, "-m", module, "--private", "--socket", address,
        "--state", str(directory / "state"), "--config", str(directory / "config.toml"),
    ]  # fmt: skip
    with (
        (directory / "log").open("wb") as log,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(directory / "notify"))
        manager.settimeout(START_SECONDS_MAX)
        surroundings = {**environment(), "NOTIFY_SOCKET": str(directory / "notify"), **variables}
        surroundings |= {"PATH": path} if path else {}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, env=surroundings) as process:
            try:
                manager.recv(4096)  # READY=1 is the first that it says
            except TimeoutError:
                sys.exit((directory / "log").read_text())
            yield address
            assert process.stdin is not None
            process.stdin.close()


def toolcell_call(session: Session, name: str = "add") -> Call:
    """Return the call of a tool that adds."""

    async def call(n: int) -> object:
        outcome = await session.call(name, {"a": n, "b": n + 1})
        assert outcome.details == 2 * n + 1, outcome
        return outcome

    return call


def _toolcell(sandbox: str, isolation: str) -> Contender:
    @contextlib.asynccontextmanager
    async def contender(directory: Path) -> AsyncGenerator[Call]:
        rules = f'[defaults]\nsandbox = "{sandbox}"\nisolation = "{isolation}"\n'
        with served(directory, rules) as path:
            async with connect(path, directory=directory / "project", daemon="running") as session:
                yield toolcell_call(session)

    return contender


@contextlib.asynccontextmanager
async def _grpc_channel(directory: Path) -> AsyncGenerator[tuple[Any, Any]]:
    path = str(directory / "grpc" / "grpc.sock")
    command = [sys.executable, "-m", "tests.bench.servers", "grpc", path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        with open(_paths.agent_token_path(path), encoding="ascii") as file:
            metadata = (("authorization", f"Bearer {file.read()}"),)
        async with grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.enable_http_proxy", 0)]
        ) as channel:
            yield channel, metadata
        process.stdin.close()


@contextlib.asynccontextmanager
async def _unary(directory: Path) -> AsyncGenerator[Call]:
    async with _grpc_channel(directory) as (channel, metadata):
        echo = channel.unary_unary(ECHO)

        async def call(_: int) -> object:
            return await echo(b"", metadata=metadata)

        yield call


@contextlib.asynccontextmanager
async def _stream(directory: Path) -> AsyncGenerator[Call]:
    async with _grpc_channel(directory) as (channel, metadata):
        stream = channel.stream_stream(PING)(metadata=metadata)

        async def call(_: int) -> object:
            await stream.write(b"")
            return await stream.read()

        yield call
        stream.cancel()


@contextlib.asynccontextmanager
async def mcp_client(command: list[str] | str, cwd: Path | None = None) -> AsyncGenerator[Any]:
    """A client of an MCP server: a command that it starts and talks to over stdio, or a URL."""
    from mcp import Client, StdioServerParameters

    target: Any = command
    if not isinstance(command, str):
        target = StdioServerParameters(
            command=command[0], args=command[1:], env=environment(), cwd=None if cwd is None else str(cwd)
        )
    async with Client(target) as client:
        yield client


def mcp_call(client: Any) -> Call:
    """Return the call of `add` through an MCP client."""

    async def call(n: int) -> object:
        result = await client.call_tool("add", {"a": n, "b": n + 1})
        assert not result.is_error, result
        assert str(2 * n + 1) in result.content[0].text, result
        return result

    return call


def _over_stdio(package: str) -> Contender:
    @contextlib.asynccontextmanager
    async def contender(directory: Path) -> AsyncGenerator[Call]:
        command = [sys.executable, "-m", "tests.bench.servers", package, "stdio"]
        async with mcp_client(command) as client:
            yield mcp_call(client)

    return contender


def _over_http(package: str) -> Contender:
    @contextlib.asynccontextmanager
    async def contender(directory: Path) -> AsyncGenerator[Call]:
        port = port_to_bind()
        command = [sys.executable, "-m", "tests.bench.servers", package, str(port)]
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as process:
            try:
                await _until_open(port, process)
                async with mcp_client(f"http://127.0.0.1:{port}/mcp") as client:
                    yield mcp_call(client)
            finally:
                process.terminate()

    return contender


async def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _through_toolcell_mcp(directory: Path) -> AsyncGenerator[Call]:
    with served(directory) as path:
        command = [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", path]
        async with mcp_client(command, directory / "project") as client:
            yield mcp_call(client)


@contextlib.asynccontextmanager
async def _subprocess(directory: Path) -> AsyncGenerator[Call]:
    program = "import json, pydantic, sys; a = json.load(sys.stdin); print(json.dumps(a['a'] + a['b']))"

    async def call(n: int) -> object:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        said, _ = await process.communicate(b'{"a": %d, "b": %d}' % (n, n + 1))
        assert int(said) == 2 * n + 1
        return said

    yield call


def _of_process(pipe: Any, a: int, b: int) -> None:
    pipe.send(add(a, b))


@contextlib.asynccontextmanager
async def _forkserver(directory: Path) -> AsyncGenerator[Call]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pydantic", "tests.bench.contenders"])

    def run(n: int) -> int:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_of_process, args=(theirs, n, n + 1))
        process.start()
        result: int = ours.recv()
        process.join()
        return result

    async def call(n: int) -> object:
        result = await asyncio.to_thread(run, n)
        assert result == 2 * n + 1
        return result

    yield call


@contextlib.asynccontextmanager
async def _process_pool(directory: Path) -> AsyncGenerator[Call]:
    loop = asyncio.get_running_loop()
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:

        async def call(n: int) -> object:
            result = await loop.run_in_executor(pool, add, n, n + 1)
            assert result == 2 * n + 1
            return result

        yield call


CONTENDERS: Mapping[str, Contender] = {
    "gRPC unary echo, empty": _unary,
    "gRPC open stream, empty": _stream,
    "Toolcell, none": _toolcell("none", "worker"),
    "Toolcell, baseline": _toolcell("baseline", "worker"),
    "Toolcell, strict": _toolcell("strict", "worker"),
    "Toolcell, strict, session": _toolcell("strict", "session"),
    "Toolcell, strict, call": _toolcell("strict", "call"),
    "toolcell mcp, stdio": _through_toolcell_mcp,
    "mcp, stdio": _over_stdio("mcp"),
    "mcp, HTTP": _over_http("mcp"),
    "FastMCP, stdio": _over_stdio("fastmcp"),
    "FastMCP, HTTP": _over_http("fastmcp"),
    "concurrent.futures, processes": _process_pool,
    "multiprocessing, forkserver": _forkserver,
    "Python subprocess": _subprocess,
}
"""By name. Those with `call`, forkserver and subprocess have a fresh process for each call; the others keep theirs."""
