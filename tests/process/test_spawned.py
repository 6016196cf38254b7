"""Processes that a tool starts with `multiprocessing` find its file and what is beside it, or the tool is told what to use."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("sandbox")]

HEAD = """
import concurrent.futures, multiprocessing
from toolcell import tool
"""
SQUARE = """
def square(n: int) -> int:
    return n * n
"""
POOL = """
def squares(method: str, function) -> list[int]:
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(function, range(4)))
"""
TOOL = """
@tool(name="{0}", {1})
def t(method: str = "spawn") -> list[int]:
    return squares(method, square)
"""
PROCESS = """
def work(queue) -> None:
    queue.put(7)

@tool(name="process")
def process(method: str = "spawn") -> int:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    found = queue.get(timeout=20)
    process.join(20)
    return found

@tool(name="manager")
def manager() -> dict[str, int]:
    with multiprocessing.Manager() as shared:
        return dict(shared.dict(a=1))
"""
FASTMCP = """
import concurrent.futures, multiprocessing
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("squares")

@mcp.tool()
def of_fastmcp(method: str = "spawn") -> list[int]:
    return squares(method, square)
"""
NESTED = """
def inner(n: int) -> int:
    return squares("spawn", square)[n]

@tool(name="nested")
def nested() -> list[int]:
    return squares("spawn", inner)
"""
SOCKETS = """
import asyncio, socket

@tool(name="pair")
def pair() -> str:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"ok")
        return other.recv(2).decode()

@tool(name="server")
async def server() -> None:
    await asyncio.start_unix_server(lambda reader, writer: None, "place")

@tool(name="connection")
async def connection() -> None:
    await asyncio.open_unix_connection("/run/none")

@tool(name="bare", network=["a.example"])
def bare() -> None:
    socket.socket(socket.AF_UNIX)
"""
NO_SOCKET = "can make no unix socket"
NO_LOCKS = "The sandbox baseline has no shared memory"


def lay(daemon: RunningDaemon, sandbox: str) -> None:
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{sandbox}"\n')
    daemon.reload()
    daemon.tool("plain", HEAD + POOL + SQUARE + TOOL.format("plain", ""))
    daemon.tool("isolated", HEAD + POOL + SQUARE + TOOL.format("isolated", 'isolation="call"'))
    daemon.tool("absolute", HEAD + POOL + "from _below import square\n" + TOOL.format("absolute", ""))
    daemon.tool("relative", HEAD + POOL + "from ._below import square\n" + TOOL.format("relative", ""))
    daemon.tool("calendar", HEAD + POOL + SQUARE + TOOL.format("of_a_module", ""))
    daemon.tool("of_fastmcp", FASTMCP + POOL + SQUARE)
    daemon.tool("nested", HEAD + POOL + SQUARE + NESTED)
    tools = daemon.project / ".toolcell/tools"
    (tools / "_below.py").write_text(SQUARE)
    (package := tools / "package").mkdir()
    (package / "__init__.py").write_text(
        HEAD + POOL + "from .inner import square\n" + TOOL.format("package", "")
    )
    (package / "inner.py").write_text(SQUARE)
    daemon.tool("processes", HEAD + PROCESS)
    daemon.tool("sockets", HEAD + SOCKETS)


POOLS = ["plain", "isolated", "absolute", "relative", "of_a_module", "of_fastmcp", "package"]
FORKED = ["plain", "isolated", "package"]
"""With the fork server, which finds a file as `spawn` does."""


def said(outcome: Outcome) -> str:
    if outcome.cause == "no_sandbox":
        pytest.skip(outcome.message)
    assert outcome.kind.value == "tool_error", outcome
    assert "network" not in outcome.text.replace("whatever network it has", "")
    return outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["strict", "none"])
async def test_a_spawned_process_finds_the_file_and_what_is_beside_it(
    daemon: RunningDaemon, sandbox: str
) -> None:
    lay(daemon, sandbox)
    async with daemon.connect() as session:
        assert not session.catalog.problems
        for name in POOLS:
            outcome = await session.call(name)
            if outcome.cause == "no_sandbox":
                pytest.skip(outcome.message)
            assert outcome.check().details == [0, 1, 4, 9], name
        assert (await session.call("nested")).check().details == [0, 1, 4, 9]
        assert (await session.call("process")).check().details == 7


@pytest.mark.slow
async def test_a_spawned_process_runs_what_its_worker_runs_and_not_what_was_saved_since(
    daemon: RunningDaemon,
) -> None:
    lay(daemon, "none")
    async with daemon.connect() as session:
        daemon.tool("plain", HEAD + POOL + SQUARE.replace("n * n", "-1") + TOOL.format("plain", ""))
        assert (await session.call("plain")).check().details == [0, 1, 4, 9]


@pytest.mark.slow
async def test_the_fork_server_and_a_manager_work_without_a_sandbox(daemon: RunningDaemon) -> None:
    lay(daemon, "none")
    async with daemon.connect() as session:
        for name in FORKED:
            assert (await session.call(name, {"method": "forkserver"})).check().details == [0, 1, 4, 9], name
        assert (await session.call("process", {"method": "forkserver"})).check().details == 7
        assert (await session.call("manager")).check().details == {"a": 1}


@pytest.mark.slow
async def test_in_a_strict_cell_the_fork_server_a_manager_and_unix_sockets_say_what_to_use(
    daemon: RunningDaemon,
) -> None:
    lay(daemon, "strict")
    async with daemon.connect() as session:
        for name in ("plain", "isolated", "process"):
            assert NO_SOCKET in said(await session.call(name, {"method": "forkserver"})), name
        for name in ("manager", "server", "connection", "bare"):
            text = said(await session.call(name))
            assert NO_SOCKET in text, name
            assert 'multiprocessing.get_context("spawn")' in text
        assert (await session.call("pair")).check().text == "ok"


@pytest.mark.slow
async def test_in_a_cell_of_baseline_locks_of_processes_say_what_to_use(daemon: RunningDaemon) -> None:
    lay(daemon, "baseline")
    async with daemon.connect() as session:
        for name in ("plain", "isolated", "process"):
            assert NO_LOCKS in said(await session.call(name)), name
        for name in ("server", "connection"):
            assert NO_SOCKET in said(await session.call(name)), name
