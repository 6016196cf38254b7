"""The kill matrix: kill or disturb each kind of process while calls are in every state.

Each call must have exactly one outcome, its cell must be empty, and the daemon must serve.
`kills/table.py` has the expected outcomes. Each line of the table is one test: it brings a call into every state
(`kills/stage.py`), does the harm to the process in the cell of each of them, or once where there is only one such
process, and compares each outcome with the table.

"Out of memory" means, for a tool, that it takes memory until it reaches its limit; for a process of the daemon's own,
that its address space can no longer grow, so that the next allocation fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import resource
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests.daemons import RunningDaemon
from tests.process.injection import CAN_INJECT, close_all_above_stderr, exit_with_zero
from tests.process.kills.client import a_stage_of_another_client
from tests.process.kills.stage import (
    CONFIG,
    WAIT_SECONDS_MAX,
    Stage,
    a_stage,
    gone,
    kind_of,
    serves,
    until,
)
from tests.process.kills.table import HARMS, PROCESSES, STATES, expected
from tests.process.kills.victims import ECHO

from toolcell.client import Outcome, Session
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.worker.keeper import descendants

pytestmark = pytest.mark.anyio

EXPECTED = expected()
CELLS = ("worker", "init", "keeper", "grandchild")
CALLERS, CALLS_EACH, KILLS = 4, 40, 12
INJECTED = {"exit 0", "closed descriptors"}


def shut_memory(pid: int) -> None:
    """Limit its address space to what it has."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1, 1))


DO_HARM: dict[str, Callable[[int], None]] = {
    "SIGKILL": lambda pid: os.kill(pid, signal.SIGKILL),
    "SIGSTOP": lambda pid: os.kill(pid, signal.SIGSTOP),
    "SIGSEGV": lambda pid: os.kill(pid, signal.SIGSEGV),
    "out of memory": shut_memory,
    "exit 0": exit_with_zero,
    "closed descriptors": close_all_above_stderr,
}


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    daemon = make_daemon()
    daemon.config.write_text(CONFIG)
    daemon.start()
    return daemon


def test_the_table_has_every_process_harm_and_state() -> None:
    assert set(EXPECTED) == set(itertools.product(PROCESSES, HARMS))
    assert all(tuple(row) == STATES for row in EXPECTED.values())


def needs_injection(harm: str) -> None:
    if harm in INJECTED and not CAN_INJECT:
        pytest.skip("needs a tracer: root on x86-64")


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("process", CELLS)
async def test_a_killed_process_of_a_cell(daemon: RunningDaemon, process: str, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        if process == "init" and not cells["running"].init:
            pytest.skip("only a strict cell has an init, and this host has none")
        row = EXPECTED[process, harm]
        for state in reversed(STATES):  # `aborting` and `ending` last for the grace only
            if state == "waiting":
                continue  # it has no cell yet, and waits for the one of `running`
            if harm == "out of memory" and process in ("worker", "grandchild"):
                (stage.where / f"fill.{process}.{state}").touch()
            else:
                DO_HARM[harm](cells[state].process(process))
        fatal = not {"ok", "timed_out"} & row["running"]
        if fatal and (process, harm) != ("worker", "closed descriptors"):  # it fails at its next step only
            # With a keeper or an init the kernel kills the others, a moment later.
            harmed = {pid for state in STATES for pid in (cells[state].process(process), cells[state].worker)}
            await until(partial(gone, harmed))
        stage.go()
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in row[state], (state, ending)
            if ending.kind != "ok" or state == "ending":
                await until(partial(gone, cells[state].all))
        await stage.each_ended_once()
        await serves(stage.daemon)


@pytest.mark.parametrize("harm", HARMS)
async def test_a_killed_zygote(daemon: RunningDaemon, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        zygote = parent(cells["running"].keeper)
        DO_HARM[harm](zygote)
        stage.go()
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in EXPECTED["zygote", harm][state], (state, ending)
        await stage.each_ended_once()
        if harm == "out of memory":  # it may survive that
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
        await serves_with_new_cells(stage)  # from cells that are ready, then from another zygote
        await until(lambda: gone({zygote}))
        await serves_with_new_cells(stage)
    if harm == "closed descriptors":
        # The error that ends it is in the log. The interpreter adds one more of the same kind where a signal arrives
        # before that: its handler finds the wake-up descriptor closed.
        log = daemon.log.read_text()
        assert log.count("Traceback") == log.count("OSError: [Errno 9] Bad file descriptor") >= 1
        assert log.count("in _handle_request") == 1
        os.truncate(daemon.log, 0)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def serves_with_new_cells(stage: Stage) -> None:
    """A cell may be lost with its zygote; later ones are not."""
    served = 0
    async with asyncio.timeout(WAIT_SECONDS_MAX), stage.daemon.connect(linger=0.2) as session:
        while served < 3:
            stage.daemon.ask("Operator/RestartWorkers", op.RestartWorkersRequest(), op.RestartWorkersResponse)
            outcome = await session.call("echo", {"n": served})
            assert (outcome.kind, outcome.details) == ("ok", served) or outcome.kind == "internal", outcome
            served = served + 1 if outcome.kind == "ok" else 0


@pytest.mark.parametrize("harm", [harm for harm in HARMS if harm != "SIGSTOP"])
async def test_a_killed_daemon(daemon: RunningDaemon, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        family = descendants(daemon.pid)
        assert family >= set().union(*(cell.all for cell in cells.values()))
        DO_HARM[harm](daemon.pid)
        if harm == "out of memory":  # it may survive that
            stage.go()
            await asyncio.wait(stage.calls.values(), timeout=WAIT_SECONDS_MAX / 2)
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        await until(partial(gone, family))
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in EXPECTED["daemon", harm][state], (state, ending)


async def test_a_stopped_daemon(daemon: RunningDaemon) -> None:
    async with a_stage(daemon) as stage:
        await stage.stand()
        DO_HARM["SIGSTOP"](daemon.pid)
        stage.go()
        done, _ = await asyncio.wait(stage.calls.values(), timeout=0.3)
        assert not done
        os.kill(daemon.pid, signal.SIGCONT)
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in EXPECTED["daemon", "SIGSTOP"][state], (state, ending)
        await stage.each_ended_once()
        await serves(stage.daemon)


@pytest.mark.parametrize("harm", HARMS)
async def test_a_killed_client(daemon: RunningDaemon, harm: str) -> None:
    async with a_stage_of_another_client(daemon) as (stage, client):
        cells = await stage.stand()
        if not client.do_harm_by_itself(harm):
            DO_HARM[harm](client.pid)
        match harm:
            case "SIGSTOP":
                stage.go()
                await stage.until_ended(but={"asking"})  # which only its client can answer
                assert not any(call.done() for call in stage.calls.values())
                os.kill(client.pid, signal.SIGCONT)
            case "out of memory":
                stage.go()  # it may survive that
                await stage.until_ended(but={"asking"})
                with contextlib.suppress(ProcessLookupError):
                    os.kill(client.pid, signal.SIGKILL)
            case _:
                await stage.until_ended()
                # A worker that was starting belongs to no call now, and goes on for the next one.
                ended = [cell.all for state, cell in cells.items() if state != "starting"]
                await until(partial(gone, set().union(*ended)))
                stage.go()
                with contextlib.suppress(ProcessLookupError):  # without descriptors it may never end
                    os.kill(client.pid, signal.SIGKILL)
        await stage.until_ended()
        heard = {state: await stage.ended(state) for state in STATES}
        for call in await stage.listed():
            state = call.call_id.removeprefix("call-")
            kind = kind_of(call)
            assert kind in EXPECTED["client", harm][state], (state, kind)
            assert heard[state].kind in {"gone", kind}, (heard, kind)
        await stage.each_ended_once()
        await serves(stage.daemon)


@pytest.mark.parametrize("seed", range(3))
async def test_kills_at_any_moment_never_give_a_call_the_result_of_another(
    daemon: RunningDaemon, seed: int
) -> None:
    """Callers call without a pause while processes of the daemon are killed, also between the states of the table.

    The seed chooses the process and the number of calls before it; what the process does at that moment is random.
    Half of the kills choose among the workers that have a call, because most processes have none.
    """
    chance = random.Random(seed)
    daemon.tool("echo", ECHO)
    daemon.describe()
    endings: list[tuple[int, Outcome]] = []
    progress = asyncio.Condition()

    async def call_on(session: Session, first: int) -> None:
        for n in range(first, first + CALLS_EACH):
            # Long enough that a worker that has a call when it is chosen still has it when it is killed.
            outcome = await session.call("echo", {"n": n, "seconds": 0.05})
            async with progress:
                endings.append((n, outcome))
                progress.notify_all()

    async with daemon.connect(linger=0.2) as session, asyncio.timeout(WAIT_SECONDS_MAX):
        calling = [asyncio.ensure_future(call_on(session, 1000 * caller)) for caller in range(CALLERS)]
        for kill in range(KILLS):
            async with progress:
                ended = CALLERS * CALLS_EACH * kill // KILLS
                await progress.wait_for(lambda ended=ended: len(endings) >= ended)  # type: ignore[misc]
            with contextlib.suppress(ProcessLookupError, IndexError):
                victims = descendants(daemon.pid) if kill % 2 else at_work(daemon)
                os.kill(chance.choice(sorted(victims)), signal.SIGKILL)
            release(daemon)
        await asyncio.gather(*calling)
    for n, outcome in endings:
        assert outcome.kind in {"ok", "crashed", "refused", "internal"}, outcome
        assert outcome.kind != "ok" or outcome.details == n, "the result of another call"
    assert any(outcome.kind != "ok" for _, outcome in endings), "no kill had an effect"
    assert sorted(n for n, _ in endings) == sorted(
        1000 * caller + n for caller in range(CALLERS) for n in range(CALLS_EACH)
    )
    release(daemon)
    await serves(daemon)


def at_work(daemon: RunningDaemon) -> set[int]:
    """The workers that have a call."""
    workers = daemon.ask("Operator/ListWorkers", op.ListWorkersRequest(), op.ListWorkersResponse).workers
    return {worker.pid for worker in workers if worker.call_id}


def release(daemon: RunningDaemon) -> None:
    """Release the file from quarantine, where so many crashes have put it."""
    with contextlib.suppress(grpc.RpcError):
        daemon.ask("Operator/Release", op.ReleaseRequest(tool="echo"), op.ReleaseResponse)
