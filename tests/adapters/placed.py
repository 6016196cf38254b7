"""An agent whose tools are those of a cluster, for each kind of agent: a call on a node, one that is aborted, and a node that
is lost in a call, frozen at first and then killed.

Nothing but the address differs from an agent whose tools are on its own machine: `TOOLCELL_SOCKET` is `ADDRESS`, and the
user has joined.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest
from tests.process.clusters import SECONDS_MAX, Cluster, cluster, tree, until_ready, written

from toolcell_proto.v1 import operator_pb2, toolcell_pb2

__all__ = ["ADDRESS", "VOLUME", "Agent", "joined", "stays_at_work"]

VOLUME = "s:"
ADDRESS = f"cluster:{VOLUME}"
NODES = {name: {"volumes": {"s": "s"}} for name in ("n1", "n2")}
"""Both have the volume, each in a directory of its own, so that a path says which node a tool ran on."""
LOST = r"""internal \(node_lost\): The call is lost with the machine {node}\. .+\.
It may go on there until \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ, and is not run again by itself: see what it has done before you repeat it\.
What it had done until then is not undone\.
The next call runs on a machine of the cluster that answers, without what tools had kept in memory\."""
"""What a model is to read: what is lost, whether it goes on, what to do, and what is not known."""


class Agent(Protocol):
    """An agent that runs, with a model of ours."""

    async def use(self, tool: str, **arguments: str) -> str:
        """Have the model use a tool; returns what it reads of the result."""
        ...

    async def abort(self, using: asyncio.Task[str]) -> None:
        """Stop what `use` does, as the agent's user would; it ends, in whatever way."""
        ...


@contextmanager
def joined(home: Path, patch: pytest.MonkeyPatch) -> Generator[Cluster]:
    """A cluster that the user of a home has joined, for a single test."""
    patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    with cluster(NODES, tenants={"alice": {"directories": ["s:"]}}) as placed:
        placed.join("alice")
        yield placed


async def stays_at_work(placed: Cluster, agent: Agent) -> None:
    """Have an agent work on a node, and go on when that is lost."""
    await until_ready()
    node = await _node_of(agent)
    await _aborts(placed, agent, node)
    daemon = placed.nodes[node]
    frozen = tree(daemon.pid)

    def freeze() -> None:
        frozen[:] = tree(daemon.pid)  # with the cell of the call
        _send(frozen, signal.SIGSTOP)

    try:
        other = await _survives(placed, agent, node, freeze)
    finally:
        _send(frozen, signal.SIGCONT)
    await asyncio.to_thread(daemon.settle)
    ended = [call.outcome.cause for call in _calls(placed, node) if call.tool == "t_ticks"]
    assert sorted(ended) == ["client", "lease_expired"]
    assert _marks(placed, node, "lost").read_text().count("begin") == 1
    await until_ready()
    assert await _survives(placed, agent, other, lambda: placed.nodes[other].stop(signal.SIGKILL)) == node
    assert await _node_of(agent) == node


async def _node_of(agent: Agent) -> str:
    """The node that the agent's tools run on, by the directory in which they do."""
    shown = await agent.use("t_where")
    found = re.fullmatch(r"/\S+/(n\d)/project/s", shown)
    assert found is not None, shown
    return found[1]


async def _aborts(placed: Cluster, agent: Agent, node: str) -> None:
    file = _marks(placed, node, "aborted")
    using = asyncio.create_task(agent.use("t_ticks", file=str(file)))
    await written(file, "begin")
    await agent.abort(using)
    (ended,) = await asyncio.gather(using, return_exceptions=True)
    assert not isinstance(ended, str)  # the turn has no result
    with anyio.fail_after(SECONDS_MAX):
        while any(not call.HasField("outcome") for call in _calls(placed, node)):
            await asyncio.sleep(0.02)  # a node has no event for it that an operator sees
    size = file.stat().st_size
    assert await _node_of(agent) == node
    assert file.stat().st_size == size
    assert "end" not in file.read_text()


async def _survives(placed: Cluster, agent: Agent, node: str, lose: Callable[[], object]) -> str:
    """Have the node lost in a call; returns the one that the next call runs on."""
    file = _marks(placed, node, "lost")
    using = asyncio.create_task(agent.use("t_ticks", file=str(file)))
    await written(file, "begin")
    await asyncio.to_thread(lose)
    with anyio.fail_after(SECONDS_MAX):
        shown = await using
    print(shown)
    assert re.search(LOST.format(node=node), shown), shown
    other = await _node_of(agent)
    assert other != node
    return other


def _marks(placed: Cluster, node: str, name: str) -> Path:
    """A file that a tool writes on a node."""
    return placed.nodes[node].directory / name


def _calls(placed: Cluster, node: str) -> list[toolcell_pb2.CallInfo]:
    answer = placed.nodes[node].ask(
        "Operator/ListCalls", operator_pb2.ListCallsRequest(), operator_pb2.ListCallsResponse
    )
    return list(answer.calls)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)
