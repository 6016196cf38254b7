"""What becomes of calls whose node is killed, frozen, cut off or half open, each at several stages of a call.

With `-s` each test prints what it found, with the times.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from tests.daemons import OTHERS_KEPT, RunningDaemon
from tests.process.clusters import SECONDS_MAX, Cluster, cluster, tree, until_ready, written
from tests.process.faulting import FaultingProxy
from tests.process.listening import listening_port

from toolcell.client import Call, Kind, Outcome, Session, connect
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NODES = {name: {"volumes": {"s": "s", "x": "x"}} for name in ("n1", "n2")}
TENANTS = {"alice": {"directories": ["s:", "x:"]}}
STAGES = ("before send", "sent", "running", "answered")
SHORT_SECONDS = 0.3
"""A fault that is over before it is noticed, or before the linger is."""


@dataclass
class Faults:
    """A cluster whose nodes can be lost in each way, and found again."""

    placed: Cluster
    ways: dict[str, FaultingProxy]
    frozen: list[int] = field(default_factory=list[int])

    def lose(self, node: str, fault: str, chance: random.Random) -> None:
        """Have a node lost for Placement and for all clients."""
        way = self.ways[node]
        if fault == "killed":
            self.placed.nodes[node].stop(signal.SIGKILL)
        elif fault == "frozen":
            self.frozen = tree(self.placed.nodes[node].pid)
            for pid in self.frozen:
                os.kill(pid, signal.SIGSTOP)
        elif fault == "half-open":
            way.half_open(near=chance.random() < 0.5)
        elif chance.random() < 0.5:
            way.cut()
        else:
            way.hold("up", "down")

    def volume(self, node: str) -> Path:
        """The exclusive volume, which each node of these has in a directory of its own."""
        return self.placed.nodes[node].project / "x"

    def find(self, node: str) -> None:
        """End the fault."""
        for pid in self.frozen:
            os.kill(pid, signal.SIGCONT)
        self.frozen = []
        daemon = self.placed.nodes[node]
        if daemon.process is None:
            daemon.start()
            self.ways[node].lead_to(listening_port(daemon))
        self.ways[node].heal()


@pytest.fixture(scope="module")
def shared() -> Iterator[Faults]:
    with ExitStack() as stack:
        ways = {name: FaultingProxy() for name in NODES}
        for way in ways.values():
            pid = stack.enter_context(way.running())
            OTHERS_KEPT.add(pid)
            stack.callback(OTHERS_KEPT.discard, pid)
        placed = stack.enter_context(cluster(NODES, ways, tenants=TENANTS, exclusive=["x"]))
        yield Faults(placed, ways)


@pytest.fixture
def faults(shared: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """A cluster that this user has joined, and whose nodes are whole before and after the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shared.placed.join("alice")
    yield shared
    for node, daemon in shared.placed.nodes.items():
        shared.find(node)
        daemon.settle()
        daemon.check_log()


async def node_of(session: Session) -> str:
    outcome = await session.call("t_where")
    assert outcome.kind is Kind.ok, outcome
    return Path(outcome.text).parents[1].name


async def on_one_node(stack: AsyncExitStack, count: int) -> tuple[str, list[Session]]:
    """So many sessions of one node."""
    found: dict[str, list[Session]] = {}
    while True:
        session = await stack.enter_async_context(connect("cluster", directory="s:"))
        node = await node_of(session)
        found.setdefault(node, []).append(session)
        if len(found[node]) == count:
            return node, found[node]


async def lost(session: Session) -> None:
    """Wait until a session has noticed that its line is lost."""
    with anyio.fail_after(SECONDS_MAX):
        while session._connection.line is not None:
            await asyncio.sleep(0.005)


def ticks(session: Session, path: Path, seconds: float) -> tuple[Call, list[Outcome]]:
    """A call that writes so long, and each outcome that it has."""
    outcomes: list[Outcome] = []
    call = session.call("t_ticks", {"file": str(path), "seconds": seconds})
    call.listen(lambda _: None, outcomes.append)
    return call, outcomes


# One outcome, and at most one run


@pytest.mark.sampled("fault", "run")
@pytest.mark.parametrize("run", range(13))
@pytest.mark.parametrize("fault", ["killed", "frozen", "cut", "half-open"])
async def test_a_call_has_one_outcome_and_runs_at_most_once(faults: Faults, fault: str, run: int) -> None:
    """With four sessions of the node, of which each has a call at another stage."""
    chance = random.Random(f"{fault} {run}")
    is_short = fault != "killed" and chance.random() < 0.3
    await until_ready()
    async with AsyncExitStack() as stack:
        node, sessions = await on_one_node(stack, len(STAGES))
        daemon = faults.placed.nodes[node]
        files = {stage: daemon.directory / f"{fault}-{run}-{stage}" for stage in STAGES}
        by_stage = dict(zip(STAGES, sessions, strict=True))
        calls = {"running": ticks(by_stage["running"], files["running"], 3600)}
        await written(files["running"], "begin")
        faults.ways[node].hold("down")
        calls["answered"] = ticks(by_stage["answered"], files["answered"], 0)
        await written(files["answered"], "end")
        calls["sent"] = ticks(by_stage["sent"], files["sent"], 0)
        await asyncio.sleep(chance.choice((0, 0, 0.002, 0.02)))
        await asyncio.to_thread(faults.lose, node, fault, chance)
        if chance.random() < 0.5 and not is_short:
            await lost(by_stage["before send"])
        calls["before send"] = ticks(by_stage["before send"], files["before send"], 0)
        if is_short:
            await asyncio.sleep(SHORT_SECONDS)
            await asyncio.to_thread(faults.find, node)
        with anyio.fail_after(SECONDS_MAX):
            for stage in ("before send", "sent", "answered"):
                await calls[stage][0]
            if is_short:
                calls["running"][0].abort()
            await calls["running"][0]
            await asyncio.to_thread(faults.find, node)
            for session in sessions:
                await node_of(session)
    await asyncio.to_thread(daemon.settle)
    for stage, (_, outcomes) in calls.items():
        (outcome,) = outcomes
        runs = files[stage].read_text().count("begin") if files[stage].exists() else 0
        print(f"{fault} {run} {stage}: {outcome.kind} {outcome.cause}, ran {runs} times")
        assert runs <= 1, (stage, outcome)
        assert outcome.ran or not runs, (stage, outcome)
        assert runs or outcome.kind is not Kind.ok, (stage, outcome)
        if outcome.cause == "node_lost":
            assert outcome.metadata["node"] == node, (stage, outcome)


# What was left behind


def stamps(path: Path) -> list[tuple[float, str]]:
    """When which node has written; a line that a kill has cut is none."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(words[0]), Path(words[1]).parents[1].name) for words in lines if len(words) == 2]


def ending(daemon: RunningDaemon, call: Call) -> str:
    """The cause of a call's end, as its node knows it."""
    request = operator_pb2.GetCallRequest(call_id=call.id)
    return daemon.ask("Operator/GetCall", request, operator_pb2.GetCallResponse).call.outcome.cause


async def test_a_frozen_node_is_left_and_its_lease_ends_its_call_when_it_goes_on(faults: Faults) -> None:
    """The daemon, its zygote and its cells are all stopped. Figures are printed, and none is asserted."""
    await until_ready()
    async with connect("cluster", directory="s:") as session, connect("cluster", directory="s:") as other:
        node = await node_of(session)
        assert await node_of(other) != node  # which has described its tools
        daemon = faults.placed.nodes[node]
        path = daemon.directory / "frozen"
        call, _ = ticks(session, path, 3600)
        await written(path, "begin")
        begun = time.monotonic()
        faults.lose(node, "frozen", random.Random(0))
        await lost(session)
        noticed = time.monotonic() - begun
        with anyio.fail_after(SECONDS_MAX):
            outcome = await call
        told = time.monotonic() - begun
        assert (outcome.cause, outcome.metadata["node"]) == ("node_lost", node)
        assert await node_of(session) != node
        elsewhere = time.monotonic() - begun
        thawed = time.monotonic()
        await asyncio.to_thread(faults.find, node)
        await asyncio.to_thread(daemon.settle)
        assert ending(daemon, call) == "lease_expired"
    went_on = max(stamps(path)[-1][0] - thawed, 0.0)
    print(
        f"noticed {noticed:.2f} s, outcome {told:.2f} s, elsewhere {elsewhere:.2f} s, went on {went_on:.2f} s"
    )
    assert path.read_text().count("begin") == 1


@pytest.mark.sampled("run")
@pytest.mark.parametrize("run", range(20))
async def test_an_exclusive_directory_is_never_written_on_two_nodes_at_a_time(
    faults: Faults, run: int
) -> None:
    """The second call waits until the lease of the first one is over; the old node may be back before that, or after it."""
    chance = random.Random(run)
    fault = ("killed", "frozen", "cut", "half-open")[run % 4]
    await until_ready()
    async with connect("cluster", directory="x:") as session:
        old = await node_of(session)
        path = Path(f"exclusive-{run}")  # below the volume, of which each node has its own here
        call, _ = ticks(session, path, 3600)
        await written(faults.volume(old) / path, "begin")
        await asyncio.to_thread(faults.lose, old, fault, chance)
        with anyio.fail_after(SECONDS_MAX):
            assert (await call).cause == "node_lost"
            second, _ = ticks(session, path, 0.5)
            found: list[float] = []
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 4)
                found.append(time.monotonic())
                await asyncio.to_thread(faults.find, old)
            assert (await second).kind is Kind.ok
            found.append(time.monotonic())
            await asyncio.to_thread(faults.find, old)
            new = await node_of(session)
    for daemon in faults.placed.nodes.values():
        await asyncio.to_thread(daemon.settle)
    files = [file for node in NODES if (file := faults.volume(node) / path).exists()]
    writes = sorted(stamp for file in files for stamp in stamps(file))
    print(f"{run} {fault}: {old} to {new}, {len(writes)} writes")
    if new != old:
        first = min(at for at, node in writes if node == new)
        late = [at for at, node in writes if node == old and at > first]
        # The cells of a machine that was suspended go on with its daemon, and write until that has ended them.
        assert not late or (fault == "frozen" and min(late) > found[0]), late
    assert sum(file.read_text().count("begin") for file in files) == 2
