"""A zygote that dies, and the one that is started after it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2
from toolcelld.cell.zygote import BACKOFF_SECONDS, STEADY_SECONDS, Zygote, _ZygoteProcess  # pyright: ignore[reportPrivateUsage]
from toolcelld.pool.prefork import READY_MAX
from toolcelld.worker.keeper import children
from toolcelld.worker.zygote.immortal import IMMORTAL, is_supported
from toolcelld.worker.zygote.launch import launch

pytestmark = pytest.mark.anyio

GONE_SECONDS_MAX = 40
HELD = """
import ctypes, os, signal
from toolcell import tool

@tool
def held() -> None:
    signal.alarm(60)
    if (child := os.fork()) == 0:
        signal.alarm(60)
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)  # PR_SET_PTRACER, which Yama asks for
        open("forked", "w").close()
        signal.pause()
    os.waitpid(child, 0)
"""
TRACE = """
import ctypes, signal, sys
signal.alarm(60)
libc = ctypes.CDLL(None, use_errno=True)
traced = libc.ptrace(0x4206, int(sys.argv[1]), None, None)  # PTRACE_SEIZE
print("traced" if traced == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lived_seconds", "longest"),
    [(1.0, BACKOFF_SECONDS[:4]), (STEADY_SECONDS, (BACKOFF_SECONDS[0], *BACKOFF_SECONDS[1:2] * 3))],
)
async def test_a_zygote_is_started_again_after_a_jittered_wait_that_grows_while_none_lives_long(
    lived_seconds: float, longest: tuple[float, ...]
) -> None:
    drawn: list[tuple[float, float]] = []
    now = 0.0

    def shortest(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    runtime = Zygote(sys.executable, print, jitter=shortest, clock=lambda: now)
    pids: set[int | None] = set()
    try:
        for _ in longest:
            zygote = await runtime.start()
            pids.add(runtime.pid)
            now += lived_seconds
            assert zygote.replace()
            async with asyncio.timeout(GONE_SECONDS_MAX):
                while runtime.pid is not None:  # it has no word for its end
                    await asyncio.sleep(0.001)
    finally:
        await runtime.aclose()
    assert len(pids) == len(longest)
    assert drawn == [(0.0, most) for most in longest]


@pytest.mark.slow
@pytest.mark.parametrize("immortal", [True, False])
async def test_a_zygote_makes_objects_immortal_only_where_the_configuration_has_it_so(immortal: bool) -> None:
    ahead = launch(sys.executable)  # before the configuration is read
    runtime = Zygote(sys.executable, print, launched=ahead, immortal=immortal)
    try:
        await runtime.start()
        assert runtime.pid is not None
        assert (runtime.pid == ahead.process.pid) is immortal
    finally:
        await runtime.aclose()
        ahead.close()
    assert ahead.process.returncode is not None


@pytest.mark.slow
@pytest.mark.parametrize("immortal", [True, False])
async def test_a_worker_finds_shared_objects_immortal_where_that_is_supported_and_wanted(
    immortal: bool, make_daemon: Callable[[], RunningDaemon]
) -> None:
    daemon = make_daemon()
    daemon.config.write_text(f"[daemon]\nimmortal_objects = {str(immortal).lower()}\n")
    daemon.tool(
        "count",
        "import sys\nfrom toolcell import tool\n\n@tool\ndef count() -> int:\n    return sys.getrefcount(tool)\n",
    )
    daemon.start()
    async with daemon.connect() as session:
        outcome = await session.call("count")
    assert (outcome.details == IMMORTAL) is (immortal and is_supported()), outcome


@pytest.mark.slow
async def test_calls_that_wait_for_a_cell_of_a_zygote_that_is_replaced_get_one_from_the_next(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()  # cells that the first zygote has forked last until its end
    daemon.start()
    calls = READY_MAX + 4
    for n in range(calls):
        daemon.tool(
            f"t{n}",
            f'from toolcell import tool\n\n@tool(isolation="call")\ndef t{n}() -> int:\n    return {n}\n',
        )
    daemon.describe()
    async with daemon.connect() as session:
        (zygote,) = _zygotes(daemon)
        os.kill(zygote, signal.SIGSTOP)  # it is replaced, as it answers nothing
        running = [session.call(f"t{n}") for n in range(calls)]
        outcomes = [await call for call in running]
    assert [outcome.details for outcome in outcomes] == list(range(calls)), outcomes


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["none", "strict"])
async def test_a_killed_process_that_the_kernel_holds_stops_no_other_tool_and_the_outcome_says_that_nothing_is_proven(
    profile: str, make_daemon: Callable[[], RunningDaemon]
) -> None:
    daemon = make_daemon()
    daemon.config.write_text(f'[defaults]\nsandbox = "{profile}"\nisolation = "call"\n')
    daemon.start()
    daemon.tool("held", HELD)
    daemon.tool("good", "from toolcell import tool\n\n@tool\ndef good() -> str:\n    return 'good'\n")
    daemon.describe()
    (zygote,) = _zygotes(daemon)
    async with daemon.connect() as session:
        call = session.call("held")
        async with asyncio.timeout(GONE_SECONDS_MAX):
            while not (daemon.project / "forked").exists():  # another process makes it, and there is no event
                await asyncio.sleep(0.01)
        keeper, process = await _cell_of_held(daemon)
        # A zombie belongs to its tracer first: nothing else of it can be seen or reaped, as if a device held it.
        tracer = subprocess.Popen(  # noqa: ASYNC220  # it answers at once
            [sys.executable, "-c", TRACE, str(process)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == "traced\n"
            os.kill(keeper, signal.SIGKILL)
            good = await session.call("good")
            outcome = await call
        finally:
            tracer.communicate()
        assert good.text == "good"
        assert (outcome.kind, outcome.cause) == ("crashed", "lost")
        assert _zygotes(daemon) == [zygote]
    assert "were killed and do not end" in daemon.log.read_text()


def _zygotes(daemon: RunningDaemon) -> list[int]:
    """The daemon's children that are no inspectors."""
    return [pid for pid in children(daemon.pid) if "inspector" not in " ".join(psutil.Process(pid).cmdline())]


async def _cell_of_held(daemon: RunningDaemon) -> tuple[int, int]:
    """The keeper of the running call, and the process that its tool has forked."""
    async with daemon.operate() as one:
        workers = (await one.ask(one.operator.ListWorkers, operator_pb2.ListWorkersRequest())).workers
    (worker,) = (it for it in workers if it.path.endswith("/held.py"))
    process, _ = children(worker.pid)  # and what holds its memory
    return worker.keeper_pid, process


async def test_a_keeper_that_is_answered_as_its_start_is_cancelled_leaves_no_descriptor() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220
    zygote = _ZygoteProcess("python", process, ours, print)
    try:
        start = asyncio.create_task(zygote.spawn([], enclosure="none"))
        await asyncio.get_running_loop().run_in_executor(None, theirs.recv, 4096)
        pidfd = os.pidfd_open(os.getpid())
        answer = b'{"type": "spawned", "id": "1", "pid": 1}'
        socket.send_fds(theirs, [answer], [pidfd])
        before = len(os.listdir("/proc/self/fd"))
        zygote._on_message()  # pyright: ignore[reportPrivateUsage]
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert len(os.listdir("/proc/self/fd")) == before
        os.close(pidfd)
    finally:
        theirs.close()
        assert process.stdin is not None
        process.stdin.close()
        await zygote.stop()
