"""A worker in which something of a call goes on is not used for another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest
from tests.daemons import DaemonSnapshot, RunningDaemon

from toolcell.client import Kind
from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

TOOLS = """
import asyncio, concurrent.futures, threading, time
import anyio.to_thread
from toolcell import tool

kept = []

@tool
async def nothing() -> None:
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

@tool
async def a_task() -> None:
    kept.append(asyncio.create_task(asyncio.sleep(60)))

@tool
async def a_task_of_another_factory() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    kept.append(asyncio.create_task(asyncio.sleep(60)))

@tool
def a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

POOL = concurrent.futures.ThreadPoolExecutor(2)

@tool
def a_pool() -> None:
    list(POOL.map(abs, range(20)))

@tool
def a_busy_pool() -> None:
    POOL.submit(time.sleep, 60)

@tool
def a_full_pool() -> None:
    for _ in range(9):
        POOL.submit(time.sleep, 20)

@tool
async def a_thread_of_anyio() -> None:
    await anyio.to_thread.run_sync(abs, 1)

@tool
async def another_executor() -> None:
    asyncio.get_running_loop().set_default_executor(POOL)
    await asyncio.to_thread(abs, 1)
"""


IDLE = """
import atexit, io, os, sys
from pathlib import Path
from toolcell import tool

atexit.register(Path("exited").touch)

@tool
def pid() -> int:
    return os.getpid()

@tool
def spin_later() -> None:
    class Spinning(io.StringIO):
        def __del__(self) -> None:
            while True:
                pass
    sys.stdout = Spinning()  # freed when the stream is put back, which is after the result
"""


def state_of(daemon: RunningDaemon) -> str:
    """The state of the process that works in the project; empty where there is none."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(daemon.project):
                return Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


async def until(daemon: RunningDaemon, state: str) -> None:
    async with asyncio.timeout(40):
        while state_of(daemon) != state:
            await asyncio.sleep(0.01)  # the kernel tells only the parent


async def test_an_idle_worker_is_stopped_and_goes_on_with_the_next_call(daemon: RunningDaemon) -> None:
    daemon.tool("idle", IDLE)
    async with daemon.connect() as session:
        first = await session.call("idle_pid")
        await until(daemon, "T")
        second = await session.call("idle_pid")
        assert (second.text, second.facts.worker_id) == (first.text, first.facts.worker_id)
        await until(daemon, "T")


async def test_a_stopped_worker_that_is_retired_runs_what_is_to_run_at_its_exit(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("idle", IDLE)
    async with daemon.connect() as session:
        await session.call("idle_pid")
        await until(daemon, "T")
        assert not (daemon.project / "exited").exists()
        daemon.ask(
            "Operator/RestartWorkers",
            operator_pb2.RestartWorkersRequest(),
            operator_pb2.RestartWorkersResponse,
        )
        await until(daemon, "")
        assert (daemon.project / "exited").exists()


@pytest.mark.slow
async def test_a_worker_that_works_after_its_result_is_ended_and_the_log_says_why(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("idle", IDLE)
    async with daemon.connect() as session:
        first = await session.call("idle_spin_later")
        assert first.kind is Kind.ok
        await until(daemon, "")
        second = await session.call("idle_pid")
        assert second.facts.worker_id != first.facts.worker_id
    assert "idle, after its result: it used " in daemon.log.read_text()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "count"),
    [
        ("nothing", 0),
        ("a_task", 1),
        pytest.param(
            "a_task_of_another_factory",
            1,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has one factory there"),
        ),
        ("a_thread", 1),
        ("a_pool", 0),
        ("a_busy_pool", 1),
        ("a_full_pool", 2),
        ("a_thread_of_anyio", 0),
        ("another_executor", 0),
    ],
)
async def test_what_a_call_leaves_is_counted_and_costs_the_worker(
    daemon: RunningDaemon, left: str, count: int
) -> None:
    daemon.tool("leave", TOOLS)
    async with daemon.connect() as session:
        first = await session.call(f"leave_{left}")
        assert (first.kind, first.facts.leftover_threads) == (Kind.ok, count), first.message
        second = await session.call("leave_nothing")
        assert (second.facts.worker_id == first.facts.worker_id) is (count == 0)


def test_a_daemon_is_at_rest_when_its_last_connection_has_gone(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the first look, against which all later ones are held: with a connection it would hide a leak."""
    looks: list[DaemonSnapshot] = []
    look = DaemonSnapshot.of
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(daemon.socket)

        def looked(daemon: RunningDaemon) -> DaemonSnapshot:
            looks.append(look(daemon))
            client.close()
            return looks[-1]

        monkeypatch.setattr(DaemonSnapshot, "of", looked)
        monkeypatch.setattr(daemon, "before", None)
        rest = daemon.at_rest()
    assert (looks[0].connections > 0, rest.connections) == (True, 0)
