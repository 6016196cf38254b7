"""Whoever dies, whenever, of whatever: one ending for each call, an empty cell, and a daemon that serves.

    worker, init,     the call ends once, its cell is empty, the next call is served
    keeper
    grandchild        the tool's own affair: its call goes on
    zygote            running calls finish; it is replaced, a stopped one at its deadline
    client            its calls are stopped after the linger; other clients notice nothing
    daemon            its clients' calls end as INTERNAL, and nothing of it is left
    daemon, stopped   nothing happens until it goes on; then everything is exact

Each call carries a number of its own and its result is compared with it: a result that went to
another call would be seen. The tool says over a file where it stands, so nothing is struck at a
guess. "Out of memory" is the closest honest thing: the address space is shut where it stands, so that
the next allocation fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.process.conftest import RunningDaemon
from tests.process.injection import CAN_INJECT, close_all_above_stderr, exit_with_zero

from toolcell.client import Ask, Session
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2
from toolcelld.worker.keeper import children, descendants

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not CAN_INJECT, reason="it makes processes do what they never would, as root on x86-64"
    ),
]

EMPTY_SECONDS_MAX = 2.0
"""From the ending of a call to the last process of its cell."""
WAIT_SECONDS_MAX = 20.0
"""For anything that has to come; other tests may have the processors."""

VICTIM = """
    import asyncio, os, subprocess, sys, time
    from pathlib import Path
    from toolcell import ToolContext, tool

    def stand(n: int, where: str, what: str) -> None:
        Path(where, f"{n}.part").write_text(what)
        Path(where, f"{n}.part").rename(Path(where, f"{n}"))

    @tool
    async def stay(ctx: ToolContext, n: int, where: str, how: str) -> int:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            if how == "asking":
                stand(n, where, str(child.pid))
                await ctx.ask("go on?")
            elif how == "streaming":
                stand(n, where, str(child.pid))
                while not Path(where, "go").exists():
                    print("x" * 1000, flush=True)
                    await asyncio.sleep(0.001)
            elif how == "aborting":
                stand(n, where, str(child.pid))
                while not Path(where, "go").exists():
                    try:
                        await asyncio.sleep(0.005)
                    except asyncio.CancelledError:
                        pass
            else:
                stand(n, where, str(child.pid))
                while not Path(where, "go").exists():
                    await asyncio.sleep(0.005)
            return [bytearray(1 << 16) for _ in range(64)] and n
        finally:
            child.kill()
            child.wait()

    @tool
    def echo(n: int) -> int:
        return n
"""

Strike = Callable[[int], None]


def shut_memory(pid: int) -> None:
    """Let it have no page more than it has."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1, 1))


HARMS: dict[str, Strike] = {
    "SIGKILL": lambda pid: os.kill(pid, signal.SIGKILL),
    "SIGSTOP": lambda pid: os.kill(pid, signal.SIGSTOP),
    "SIGSEGV": lambda pid: os.kill(pid, signal.SIGSEGV),
    "out of memory": shut_memory,
    "exit 0": exit_with_zero,
    "closed descriptors": close_all_above_stderr,
}
STATES = ("running", "streaming", "asking", "aborting")
KILLED_OR_DONE = {"crashed", "aborted", "timed_out", "tool_error", "internal", "ok"}
"""How a call may end whose cell was struck; not `refused`, as it had begun."""


class Scene:
    """A daemon, a session, and one call that stands where it was told to."""

    def __init__(self, daemon: RunningDaemon, session: Session, where: Path) -> None:
        self.daemon = daemon
        self.session = session
        self.where = where
        self.number = 0

    async def stand(self, how: str) -> tuple[asyncio.Task[Any], int]:
        """Have a call stand there; its task, and the process that it started."""
        self.number += 1
        n = self.number
        self.where.joinpath("go").unlink(missing_ok=True)
        arguments = {"n": n, "where": str(self.where), "how": how}
        call = asyncio.ensure_future(self.session.call("stay", arguments, call_id=f"call-{n}"))
        mark = self.where / str(n)
        await until(mark.exists)
        _, worker = await self.cell()
        (child,) = children(worker)
        if how == "aborting":
            await self.abort()
        return call, child

    async def abort(self) -> None:
        """Have the call aborted, as an operator does it."""
        request = toolcell_pb2.AbortCallRequest(call_id=f"call-{self.number}", reason="by the test")
        async with self.daemon.operate() as one:
            await one.ask(one.tools.AbortCall, request)

    async def workers(self) -> list[op.WorkerInfo]:
        async with self.daemon.operate() as one:
            return list((await one.ask(one.operator.ListWorkers, op.ListWorkersRequest())).workers)

    async def cell(self) -> tuple[int, int]:
        """The keeper and the worker of the call that runs."""
        (busy,) = [worker for worker in await self.workers() if worker.call_id == f"call-{self.number}"]
        return busy.keeper_pid, busy.pid

    def go(self) -> None:
        (self.where / "go").touch()

    async def serves(self) -> None:
        """The daemon serves the next calls, each its own result."""
        for n in (1001, 1002):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                outcome = await self.session.call("stay_echo", {"n": n})
            assert (outcome.kind, outcome.details) == ("ok", n), outcome


async def until(true: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait for a condition that nothing tells of, within a bound."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.01)


def gone(pids: set[int]) -> bool:
    """Whether none of them runs any more; a zombie does not."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                return False
    return True


@contextlib.asynccontextmanager
async def a_scene(daemon: RunningDaemon) -> AsyncGenerator[Scene]:
    daemon.tool("stay", VICTIM)
    where = daemon.project / "where"
    where.mkdir()

    async def never(_: Ask) -> bool:
        await asyncio.Event().wait()
        return True

    async with daemon.connect(ask=never, linger=0.2) as session:
        yield Scene(daemon, session, where)


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    daemon = make_daemon()
    daemon.config.write_text('[daemon]\nabort_grace = "200ms"\n[defaults]\ntimeout = "3s"\n')
    daemon.start()
    return daemon


# A worker that runs out of memory is in tests/process/test_limits.py.
@pytest.mark.parametrize(
    ("process", "harm"),
    [
        (process, harm)
        for process in ("worker", "init", "keeper")
        for harm in HARMS
        # The first process of a namespace takes no signal from outside but those that cannot be caught.
        # A keeper without descriptors ends by itself, and what strikes it that way meets it half gone.
        if (process, harm)
        not in {("worker", "out of memory"), ("init", "SIGSEGV"), ("keeper", "closed descriptors")}
    ],
)
async def test_a_struck_cell_ends_its_call_once_and_is_empty(
    daemon: RunningDaemon, process: str, harm: str
) -> None:
    async with a_scene(daemon) as scene:
        for how in STATES:
            call, child = await scene.stand(how)
            keeper, worker = await scene.cell()
            cell = {keeper, worker, child} | descendants(keeper)
            init = next(iter(children(keeper)), worker)
            if process == "init" and init == worker and how != "aborting":
                pytest.skip("only a strict cell has an init, and this host has none")
            # A call that is being aborted may be gone before it is struck.
            with contextlib.suppress(ProcessLookupError) if how == "aborting" else contextlib.nullcontext():
                HARMS[harm]({"worker": worker, "init": init, "keeper": keeper}[process])
            scene.go()
            if how == "asking" and harm in ("closed descriptors", "out of memory", "SIGSTOP"):
                await scene.abort()  # nobody answers it, and no clock runs
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                outcome = await call
            assert outcome.kind in KILLED_OR_DONE, (how, outcome)
            if outcome.kind == "tool_error":
                pass  # it ran out of memory, said so, and its worker lives on
            elif outcome.kind == "ok":
                assert outcome.details == scene.number, "a result of another call"
            else:
                await until(partial(gone, cell), EMPTY_SECONDS_MAX)
            await scene.serves()
            async with daemon.operate() as one:
                with contextlib.suppress(Exception):
                    await one.ask(one.operator.Release, op.ReleaseRequest(tool="stay"))


@pytest.mark.parametrize("harm", ["SIGKILL", "SIGSTOP", "SIGSEGV", "exit 0", "closed descriptors"])
async def test_a_struck_grandchild_is_its_tools_affair(daemon: RunningDaemon, harm: str) -> None:
    async with a_scene(daemon) as scene:
        call, child = await scene.stand("running")
        HARMS[harm](child)
        scene.go()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.details) == ("ok", scene.number)
        assert gone({child})


# Without its descriptors it dies by a traceback, which the daemon's log has to show, and `check` refuses that.
@pytest.mark.parametrize("harm", ["SIGKILL", "SIGSTOP", "SIGSEGV", "exit 0"])
async def test_calls_outlive_their_zygote_and_it_is_replaced(daemon: RunningDaemon, harm: str) -> None:
    async with a_scene(daemon) as scene:
        call, _ = await scene.stand("running")
        keeper, _ = await scene.cell()
        zygote = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
        HARMS[harm](zygote)
        scene.go()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.details) == ("ok", scene.number)
        await serves_again(scene)  # by the blanks that there are, and then by another zygote's
        await until(lambda: gone({zygote}))
        await serves_again(scene)


async def test_a_worker_that_dies_while_its_zygote_stands_still_is_noticed(daemon: RunningDaemon) -> None:
    async with a_scene(daemon) as scene:
        call, child = await scene.stand("running")
        keeper, worker = await scene.cell()
        zygote = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(zygote, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.cause) == ("crashed", "SIGKILL")
        assert gone({zygote, worker, child})
        await scene.serves()


def ask_for_cells(scene: Scene) -> None:
    """Use the blanks up, so that others are wanted."""
    scene.daemon.ask("Operator/RestartWorkers", op.RestartWorkersRequest(), op.RestartWorkersResponse)


async def serves_again(scene: Scene) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    served = 0
    while served < 3:
        ask_for_cells(scene)
        outcome = await scene.session.call("stay_echo", {"n": served})
        assert (outcome.kind, outcome.details) == ("ok", served) or outcome.kind == "internal", outcome
        served = served + 1 if outcome.kind == "ok" else 0
        assert time.monotonic() < deadline, outcome


@pytest.mark.parametrize("harm", ["SIGKILL", "SIGSEGV", "exit 0"])
async def test_a_dead_daemon_ends_its_clients_calls_and_leaves_nothing(
    daemon: RunningDaemon, harm: str
) -> None:
    async with a_scene(daemon) as scene:
        call, child = await scene.stand("running")
        family = descendants(daemon.pid) | {child}
        HARMS[harm](daemon.pid)
        daemon.wait()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            outcome = await call
        assert outcome.kind == "internal", outcome
        await until(lambda: gone(family), EMPTY_SECONDS_MAX)


async def test_a_stopped_daemon_is_exact_when_it_goes_on(daemon: RunningDaemon) -> None:
    async with a_scene(daemon) as scene:
        call, _ = await scene.stand("running")
        os.kill(daemon.pid, signal.SIGSTOP)
        echoes = [asyncio.ensure_future(scene.session.call("stay_echo", {"n": n})) for n in range(20)]
        scene.go()
        await asyncio.wait(echoes, timeout=0.3)
        assert not any(echo.done() for echo in echoes)
        os.kill(daemon.pid, signal.SIGCONT)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert [(await echo).details for echo in echoes] == list(range(20))
            assert (await call).details == scene.number


CLIENT = """
import asyncio, os, signal, sys
from toolcell.client import connect

signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
signal.signal(signal.SIGUSR2, lambda *_: os.closerange(3, 1000))

async def main() -> None:
    socket, directory, where = sys.argv[1:]
    async with connect(socket, directory=directory, daemon="running", linger=0.2) as session:
        await session.call("stay", {"n": 77, "where": where, "how": "running"})

asyncio.run(main())
"""


@pytest.mark.parametrize("harm", ["SIGKILL", "SIGSEGV", "exit 0", "closed descriptors"])
async def test_a_dead_clients_calls_are_stopped_and_other_clients_notice_nothing(
    daemon: RunningDaemon, harm: str
) -> None:
    async with a_scene(daemon) as scene:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, daemon.socket, str(daemon.project), str(scene.where),
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await until((scene.where / "77").exists)
            (busy,) = [worker for worker in await scene.workers() if worker.call_id]
            (child,) = children(busy.pid)
            # Our own child is waited for by somebody else than a tracer, so it does these two by itself.
            itself = {"exit 0": signal.SIGUSR1, "closed descriptors": signal.SIGUSR2}
            if harm in itself:
                os.kill(client.pid, itself[harm])
            else:
                HARMS[harm](client.pid)
            await until(lambda: gone({child, busy.pid, busy.keeper_pid}))
            await scene.serves()
        finally:
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.wait()
