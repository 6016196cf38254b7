"""Fork bombs where no control group holds them: what ends them, and that others are served meanwhile.

Every bomb here has at most 300 processes at any time, and eight seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Session
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.worker.keeper import STOP_SIGNAL

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

BOMB_SECONDS = 8
LOWEST = 19
"""The lowest priority; the daemon may have it already."""

BOMB = f"""
import mmap, os, signal, time
from toolcell import tool

MOST = 150
SECONDS = {BOMB_SECONDS}

@tool
def bomb(apart: bool) -> str:
    counted = mmap.mmap(-1, mmap.PAGESIZE)  # a byte for each process
    end = time.monotonic() + SECONDS

    def breed(number: int) -> None:
        signal.alarm(SECONDS + 2)
        if apart:
            os.setsid()
        counted[number] = 1
        while time.monotonic() < end:
            for child in (2 * number + 1, 2 * number + 2, MOST):  # the last one exits at once
                if child >= MOST or not counted[child]:
                    try:
                        if (pid := os.fork()) == 0:
                            breed(child) if child < MOST else os._exit(0)
                        if child >= MOST:
                            os.waitpid(pid, 0)
                    except OSError:
                        continue
        os._exit(0)

    if os.fork() == 0:
        breed(0)
    while time.monotonic() < end:
        time.sleep(0.01)
    return f"{{sum(counted[:MOST])}} processes to its own end"
"""

REVERSE = "from toolcell import tool\n\n\n@tool\ndef reverse(word: str) -> str:\n    return word[::-1]\n"

WAITING = """
import os, time
from pathlib import Path
from toolcell import tool

@tool
def wait() -> str:
    child = os.fork()
    while not Path("enough").exists():
        Path(f"there-{os.getpid()}").touch()
        time.sleep(0.01)
    if child == 0:
        os._exit(0)
    os.wait()
    return "done"
"""


async def serve_others(session: Session) -> float:
    """Call another tool until cancelled; returns the longest wait of a call in seconds."""
    longest = 0.0
    try:
        while True:
            began = time.monotonic()
            calling = session.call("reverse", {"word": "abc"})
            try:
                assert (await calling).text == "cba"
            finally:
                longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return longest


@pytest.mark.sampled("apart")
@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one session", "a session each"])
@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_a_fork_bomb_is_ended_and_keeps_nobody_waiting(
    daemon: RunningDaemon, sandbox: str, apart: bool
) -> None:
    # Before they are too many, they seem to have too much memory: they share it, which takes their locks to find out.
    daemon.configure(
        f'\n[tool.bomb]\nsandbox = "{sandbox}"\nprocesses = 64\nmemory = "768MiB"\ntimeout = 60\n'
    )
    daemon.tool("bomb", BOMB)
    other = daemon.directory / "other"
    (other / ".toolcell" / "tools").mkdir(parents=True)
    (other / ".toolcell" / "tools" / "reverse.py").write_text(REVERSE)
    daemon.reload()
    async with daemon.connect() as session, daemon.connect(directory=other) as others:
        serving = asyncio.create_task(serve_others(others))
        outcome = await session.call("bomb", {"apart": apart})
        serving.cancel()
        longest = await serving
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    # One that was given a low priority is not ahead of its cells; the bomb may then come to its own end.
    ahead = os.getpriority(os.PRIO_PROCESS, daemon.pid) <= 0
    if ahead or not outcome.ok:
        ended = (outcome.kind, outcome.cause, outcome.stopped)
        assert ended == ("limit_exceeded", "processes", "killed"), outcome
    most = BOMB_SECONDS / 2 if ahead else BOMB_SECONDS * 3
    assert longest < most, f"others waited for {longest:.1f} s, the bomb has {BOMB_SECONDS} s"


async def processes_of(daemon: RunningDaemon) -> tuple[psutil.Process, list[psutil.Process], psutil.Process]:
    """The keeper of the only cell that runs a tool, what is between it and the worker, and the worker."""
    async with daemon.operate() as one:
        workers = (await one.ask(one.operator.ListWorkers, op.ListWorkersRequest())).workers
    (found,) = [
        worker for worker in workers if worker.calls or worker.state == "busy"
    ]  # and describes no file
    worker = psutil.Process(found.pid)
    between: list[psutil.Process] = []
    for process in worker.parents():
        if process.pid == found.keeper_pid:
            return process, between, worker
        between.append(process)
    raise AssertionError(f"{found.keeper_pid} is not above {found.pid}")


@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_what_ends_a_cell_does_not_wait_for_the_processor_behind_the_cell(
    daemon: RunningDaemon, sandbox: str
) -> None:
    """The kernel shares the processors out to sessions, or to processes by their priority."""
    daemon.configure(f'\n[tool.reverse]\nsandbox = "{sandbox}"\n')
    daemon.tool("reverse", REVERSE)
    async with daemon.connect() as session:
        outcome = await session.call("reverse", {"word": "abc"})
        if outcome.cause == "sandbox_unavailable":
            pytest.skip(outcome.message)
        keeper, between, worker = await processes_of(daemon)
        enders = [keeper, *(between[-1:] if sandbox == "strict" else [])]  # its init
        assert {os.getsid(one.pid) for one in enders} == {keeper.pid}
        assert os.getsid(worker.pid) != keeper.pid
        assert all(one.nice() < worker.nice() or one.nice() == LOWEST for one in enders)


async def test_init_stops_its_whole_cell_when_it_is_told_to(daemon: RunningDaemon) -> None:
    if not has_strict(daemon):
        pytest.skip("no strict cells on this host")
    daemon.configure('\n[tool.wait]\nsandbox = "strict"\n')
    daemon.tool("wait", WAITING)
    async with daemon.connect() as session:
        call = session.call("wait")
        async with asyncio.timeout(60):
            while len(list(daemon.project.glob("there-*"))) < 2:
                await asyncio.sleep(0.01)  # other processes write them, and there is no event
            keeper, between, worker = await processes_of(daemon)
            cell = [worker, *worker.children()]
            while {one.status() for one in cell} != {psutil.STATUS_STOPPED}:
                # Again: one that comes just before init waits is handled later.
                os.kill(between[-1].pid, STOP_SIGNAL)
                await asyncio.sleep(0.01)  # as above
        assert keeper.status() != psutil.STATUS_STOPPED
        Path(daemon.project, "enough").touch()
        for one in cell:
            one.send_signal(signal.SIGCONT)
        assert (await call).text == "done"


def findings(daemon: RunningDaemon) -> dict[str, str]:
    found = daemon.ask("Operator/Doctor", op.DoctorRequest(), op.DoctorResponse).findings
    return {one.name: one.state for one in found}


def has_strict(daemon: RunningDaemon) -> bool:
    return findings(daemon)["strict"] != "missing"


async def test_the_doctor_says_whether_process_numbers_are_bounded(daemon: RunningDaemon) -> None:
    found = findings(daemon)
    assert ("process numbers" in found) == has_strict(daemon)
    assert (found.get("process numbers") == "in use") == ("bounded number of processes" in found)
