"""However a shared MCP server, its daemon or its host ends, no process of it is left: counted from the kernel.

Each round starts a server, which starts a child in a session of its own, and ends them in one of the ways of `WAYS`; in
half of the rounds a call is running. The gate has each way once, the nightly run two hundred rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import descendants
from tests.daemons import ROOMY, RunningDaemon, running_daemon
from tests.process.kills.stage import gone
from tests.process.test_mcp_servers import SECONDS_MAX, no_other_sleep, processes, text_of, until, workers
from tests.process.test_several_calls import CROWD, Place

from toolcell.client import Session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CONFIG: Final = """
[daemon]
abort_grace = "300ms"
[source.crowd]
mcp = {command}
[source.own]
mcp = {command}
share = "session"
[source.brief]
mcp = {command}
idle = "100ms"
"""
HOST: Final = """
import json, subprocess, sys, time

words, tool, seconds = json.loads(sys.argv[1]), *sys.argv[2:]
bridge = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def request(number, method, params):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    bridge.stdin.write(json.dumps(message).encode() + b"\\n")
    bridge.stdin.flush()
    while json.loads(bridge.stdout.readline()).get("id") != number:
        pass

about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
request(1, "initialize", about)
request(2, "tools/call", {"name": tool, "arguments": {"seconds": seconds}})
print(bridge.pid, flush=True)
time.sleep(60)
"""
"""A host of `toolcell mcp` that calls a tool once, and tells the process of its bridge."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The processes of a server's cell."""

    keeper: int
    worker: int
    server: int
    all: frozenset[int]


async def cell_of(daemon: RunningDaemon, source: str, seconds: str) -> Cell:
    """The cell of a server that has started a child."""
    (worker,) = [it for it in workers(daemon) if Path(it.path).stem == source]
    below = frozenset(descendants(worker.keeper_pid))
    (child,) = processes(f"sleep\x00{seconds}")
    assert child in below
    assert os.getsid(child) == child, "it left the session of its server"
    (server,) = [pid for pid in processes(f"{daemon.project}/crowd.py") if pid in below]
    return Cell(worker.keeper_pid, worker.pid, server, below | {worker.keeper_pid})


async def end_of_session(daemon: RunningDaemon, cell: Cell, stack: AsyncExitStack) -> None:
    await stack.aclose()


async def idle(daemon: RunningDaemon, cell: Cell, stack: AsyncExitStack) -> None:
    """Call it no more."""


async def stop(daemon: RunningDaemon, cell: Cell, stack: AsyncExitStack) -> None:
    assert await asyncio.to_thread(daemon.stop) == 0


async def kill_daemon(daemon: RunningDaemon, cell: Cell, stack: AsyncExitStack) -> None:
    await asyncio.to_thread(daemon.stop, signal.SIGKILL)


def killing(process: str) -> Callable[[RunningDaemon, Cell, AsyncExitStack], Awaitable[None]]:
    async def kill(daemon: RunningDaemon, cell: Cell, stack: AsyncExitStack) -> None:
        os.kill(getattr(cell, process), signal.SIGKILL)

    return kill


Way = Callable[[RunningDaemon, Cell, AsyncExitStack], Awaitable[None]]
WAYS: Final[dict[str, tuple[str, Way]]] = {
    "session": ("own", end_of_session),
    "idle": ("brief", idle),
    "stop": ("crowd", stop),
    "daemon": ("crowd", kill_daemon),
    "keeper": ("crowd", killing("keeper")),
    "worker": ("crowd", killing("worker")),
    "server": ("crowd", killing("server")),
}
"""The source that is used, and the end."""
ENDS: Final = (*WAYS, "host")


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon with a server that is shared, one of each session, and one that ends soon."""
    with running_daemon() as daemon:
        shutil.copy(CROWD, daemon.project / "crowd.py")
        command = json.dumps([sys.executable, "-I", "${project}/crowd.py"])
        roomy = ROOMY.format(directory=daemon.directory)
        daemon.config.write_text(roomy + CONFIG.format(command=command))
        daemon.reload()
        yield daemon


@asynccontextmanager
async def host_of(daemon: RunningDaemon, seconds: str) -> AsyncGenerator[list[int]]:
    """A host that has called the server of its session, and its bridge; killed if that has not happened."""
    words = [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", daemon.socket]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, json.dumps(words), "own_child", seconds),
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(2 * SECONDS_MAX):  # a bridge starts, and a session waits for descriptions
            bridge = int(await process.stdout.readline())
        yield [process.pid, bridge]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed_host(daemon: RunningDaemon, seconds: str) -> frozenset[int]:
    """Have a host call a server, and kill it; return the processes that have to end."""
    async with host_of(daemon, seconds) as pids:
        cell = await cell_of(daemon, "own", seconds)
        os.kill(pids[0], signal.SIGKILL)
        return cell.all | set(pids)


async def ended(daemon: RunningDaemon, way: str, seconds: str, *, busy: bool) -> frozenset[int]:
    """Start a server and a child of it, and end them in a way; return their processes."""
    source, end = WAYS[way]
    place = Place(daemon)
    async with AsyncExitStack() as stack:
        session: Session = await stack.enter_async_context(daemon.connect(linger=0.1))
        place.gate.unlink(missing_ok=True)
        place.begun.unlink(missing_ok=True)
        call = session.call(f"{source}_wait", place.waiting)  # so that it is not idle yet
        await place.until_begun(1)
        await text_of(session, f"{source}_child", seconds=seconds)
        cell = await cell_of(daemon, source, seconds)
        if way == "idle" or not (busy or way == "server"):  # the end of a server is seen in a call
            place.gate.touch()
            await call
        await end(daemon, cell, stack)
    return cell.all


async def rounds(daemon: RunningDaemon, ways: Sequence[str], chance: random.Random) -> None:
    for way in ways:
        seconds = no_other_sleep()
        if way == "host":
            pids = await killed_host(daemon, seconds)
        else:
            pids = await ended(daemon, way, seconds, busy=chance.random() < 0.5)
        await until(partial(gone, set(pids)))
        assert processes(f"sleep\x00{seconds}") == []
        if daemon.process is None:
            await asyncio.to_thread(daemon.start)
    async with daemon.connect() as session:
        await text_of(session, "crowd_pid")
    assert len(processes(f"{daemon.project}/crowd.py")) == 1, "more than the server of now"


@pytest.mark.parametrize("way", ENDS)
async def test_no_process_of_a_server_is_left_whatever_ends(way: str, daemon: RunningDaemon) -> None:
    await rounds(daemon, [way], random.Random(way))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
async def test_none_is_left_in_fifty_rounds(seed: int, daemon: RunningDaemon) -> None:
    chance = random.Random(seed)
    ways = [*ENDS] * 6 + chance.sample(ENDS, 2)
    chance.shuffle(ways)
    await rounds(daemon, ways, chance)
