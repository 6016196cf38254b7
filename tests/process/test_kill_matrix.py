"""Whoever dies, whenever, of whatever: one ending for each call, an empty cell, and a daemon that serves.

What has to come of it stands in `kills/table.py`. Here each line of the table is one test: a call is brought
to stand in every state at once (`kills/stage.py`), the process is struck in the cell of each of them, or once
where there is only one, and each call is held to its entry.

"Out of memory" is, for a tool, that it takes memory until its limit ends it; for every process of ours,
that its address space is shut where it stands, so that the next allocation fails.
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
from tests.process.conftest import RunningDaemon
from tests.process.injection import CAN_INJECT, close_all_above_stderr, exit_with_zero
from tests.process.kills.client import a_stage_of_another_client
from tests.process.kills.stage import (
    CONFIG,
    EMPTY_SECONDS_MAX,
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
    """Let it have no page more than it has."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1, 1))


STRIKES: dict[str, Callable[[int], None]] = {
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
        pytest.skip("only a tracer can have it done, as root on x86-64")


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("process", CELLS)
async def test_a_struck_process_of_a_cell(daemon: RunningDaemon, process: str, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        if process == "init" and not cells["running"].init:
            pytest.skip("only a strict cell has an init, and this host has none")
        row = EXPECTED[process, harm]
        for state in STATES:
            if state == "waiting":
                continue  # it has no cell yet; that of the one before it is struck
            if harm == "out of memory" and process in ("worker", "grandchild"):
                (stage.where / f"fill.{process}.{state}").touch()
            else:
                STRIKES[harm](cells[state].process(process))
        fatal = not {"ok", "timed_out"} & row["running"]
        if fatal and (process, harm) != ("worker", "closed descriptors"):  # which only its next step ends
            # With a keeper or an init the kernel kills the others, and that takes a moment.
            struck = {pid for state in STATES for pid in (cells[state].process(process), cells[state].worker)}
            await until(partial(gone, struck))
        stage.go()
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in row[state], (state, ending)
            if ending.kind != "ok" or state == "ending":
                await until(partial(gone, cells[state].all), EMPTY_SECONDS_MAX)
        await stage.each_ended_once()
        await serves(stage.daemon)


@pytest.mark.parametrize("harm", HARMS)
async def test_a_struck_zygote(daemon: RunningDaemon, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        zygote = parent(cells["running"].keeper)
        STRIKES[harm](zygote)
        stage.go()
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in EXPECTED["zygote", harm][state], (state, ending)
        await stage.each_ended_once()
        if harm == "out of memory":  # it may live through that, until the kernel chooses it
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
        await serves_with_new_cells(stage)  # by the blanks that there are, and then by another zygote's
        await until(lambda: gone({zygote}))
        await serves_with_new_cells(stage)
    if harm == "closed descriptors":  # it says so as it dies, and nothing else may be in the log
        log = daemon.log.read_text()
        assert log.count("Traceback") == log.count("OSError: [Errno 9] Bad file descriptor") == 1
        os.truncate(daemon.log, 0)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def serves_with_new_cells(stage: Stage) -> None:
    """A cell may be lost with its zygote; the ones after it are not."""
    served = 0
    async with asyncio.timeout(WAIT_SECONDS_MAX), stage.daemon.connect(linger=0.2) as session:
        while served < 3:
            stage.daemon.ask("Operator/RestartWorkers", op.RestartWorkersRequest(), op.RestartWorkersResponse)
            outcome = await session.call("echo", {"n": served})
            assert (outcome.kind, outcome.details) == ("ok", served) or outcome.kind == "internal", outcome
            served = served + 1 if outcome.kind == "ok" else 0


@pytest.mark.parametrize("harm", [harm for harm in HARMS if harm != "SIGSTOP"])
async def test_a_struck_daemon(daemon: RunningDaemon, harm: str) -> None:
    needs_injection(harm)
    async with a_stage(daemon) as stage:
        cells = await stage.stand()
        family = descendants(daemon.pid)
        assert family >= set().union(*(cell.all for cell in cells.values()))
        STRIKES[harm](daemon.pid)
        if harm == "out of memory":  # it may live through that, until the kernel chooses it
            stage.go()
            await asyncio.wait(stage.calls.values(), timeout=WAIT_SECONDS_MAX / 2)
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        await until(partial(gone, family), EMPTY_SECONDS_MAX)
        for state in STATES:
            ending = await stage.ended(state)
            assert ending.kind in EXPECTED["daemon", harm][state], (state, ending)


async def test_a_stopped_daemon(daemon: RunningDaemon) -> None:
    async with a_stage(daemon) as stage:
        await stage.stand()
        STRIKES["SIGSTOP"](daemon.pid)
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
async def test_a_struck_client(daemon: RunningDaemon, harm: str) -> None:
    async with a_stage_of_another_client(daemon) as (stage, client):
        cells = await stage.stand()
        if not client.strike_by_itself(harm):
            STRIKES[harm](client.pid)
        match harm:
            case "SIGSTOP":
                stage.go()
                await stage.until_ended(but={"asking"})  # which only its client can answer
                assert not any(call.done() for call in stage.calls.values())
                os.kill(client.pid, signal.SIGCONT)
            case "out of memory":
                stage.go()  # it may live through that, until the kernel chooses it
                await stage.until_ended(but={"asking"})
                with contextlib.suppress(ProcessLookupError):
                    os.kill(client.pid, signal.SIGKILL)
            case _:
                await stage.until_ended()
                # What was starting is nobody's now, and goes on for whoever calls next.
                ended = [cell.all for state, cell in cells.items() if state != "starting"]
                await until(partial(gone, set().union(*ended)), EMPTY_SECONDS_MAX)
                stage.go()
                with contextlib.suppress(ProcessLookupError):  # one without descriptors may wait for ever
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
async def test_kills_at_any_moment_bring_nobody_the_result_of_another(
    daemon: RunningDaemon, seed: int
) -> None:
    """The states in between: callers call without pause while one process of the daemon's after the other is killed.

    Whom and after how many calls is the seed's; what the victim does just then is chance. Every other one has a call,
    as most processes wait for one.
    """
    chance = random.Random(seed)
    daemon.tool("echo", ECHO)
    daemon.describe()
    endings: list[tuple[int, Outcome]] = []
    progress = asyncio.Condition()

    async def call_on(session: Session, first: int) -> None:
        for n in range(first, first + CALLS_EACH):
            # So that whoever has a call when a victim is chosen has it when it is struck.
            outcome = await session.call("echo", {"n": n, "seconds": 0.05})
            async with progress:
                endings.append((n, outcome))
                progress.notify_all()

    async with daemon.connect(linger=0.2) as session, asyncio.timeout(WAIT_SECONDS_MAX):
        calling = [asyncio.ensure_future(call_on(session, 1000 * caller)) for caller in range(CALLERS)]
        for strike in range(KILLS):
            async with progress:
                ended = CALLERS * CALLS_EACH * strike // KILLS
                await progress.wait_for(lambda ended=ended: len(endings) >= ended)  # type: ignore[misc]
            with contextlib.suppress(ProcessLookupError, IndexError):
                victims = descendants(daemon.pid) if strike % 2 else at_work(daemon)
                os.kill(chance.choice(sorted(victims)), signal.SIGKILL)
            release(daemon)
        await asyncio.gather(*calling)
    for n, outcome in endings:
        assert outcome.kind in {"ok", "crashed", "refused", "internal"}, outcome
        assert outcome.kind != "ok" or outcome.details == n, "the result of another call"
    assert any(outcome.kind != "ok" for _, outcome in endings), "nobody was hit"
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
    """Let the file out of quarantine, where so many deaths have brought it there."""
    with contextlib.suppress(grpc.RpcError):
        daemon.ask("Operator/Release", op.ReleaseRequest(tool="echo"), op.ReleaseResponse)
