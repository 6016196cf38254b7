"""What is measured of the contenders: calls in turn, calls at once, first calls, fresh processes, engines, starts, memory.

The contenders of one figure are timed in turn, in random order, because machines drift.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.adopted import adopted_servers
from tests.bench.contenders import (
    CONTENDERS,
    SCRIPT,
    TOOLS,
    Call,
    environment,
    mcp_client,
    served,
    toolcell_call,
)
from tests.bench.doors import road
from tests.bench.placed import placed_calls
from tests.bench.report import ADOPTED, WAITING
from tests.engines import ENGINES

from toolcell.client import connect
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2

__all__ = ["MEASURES", "Figures", "Sizes", "calls_in_turn"]

ROUND_CALLS: Final = 25
"""Calls of one contender that follow each other: as a program makes them, and short enough that a drift is shared."""
SLOW_SECONDS: Final = 0.02
"""A contender whose first calls take longer than this gets a tenth of the calls."""
IN_FLIGHT: Final = 32
PACE_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.15
"""After a first call, until the next cells have been made ahead."""
WITH_PYDANTIC: Final = "from pydantic import TypeAdapter; TypeAdapter(dict[str, int]).validate_json('{}')"
DESCRIBE_SECONDS_MAX: Final = 60
LARGE_BYTES: Final = 1_000_000
FASTMCP: Final = [sys.executable, "-m", "tests.bench.servers", "fastmcp", "stdio"]

Figures = dict[str, float]


class Sizes:
    """How much is measured.

    Args:
        quick: Whether only to show that it works, which takes some seconds.
    """

    def __init__(self, quick: bool) -> None:
        self.calls = 50 if quick else 1000
        self.seconds = 0.3 if quick else 4.0
        self.new_workers = 4 if quick else 30
        self.paced = 5 if quick else 60
        self.starts = 1 if quick else 9
        self.cells = 4 if quick else 24
        self.large = 5 if quick else 100
        self.servers = 2 if quick else 9
        self.sessions = 2 if quick else 10
        self.rounds = 3 if quick else 40


async def _seconds(call: Call, n: int) -> float:
    began = time.perf_counter()
    await call(n)
    return time.perf_counter() - began


async def calls_in_turn(directory: Path, names: list[str], sizes: Sizes) -> dict[str, list[float]]:
    """Return the seconds of the calls of each contender."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    async with contextlib.AsyncExitStack() as stack:
        calls: dict[str, Call] = {}
        for number, name in enumerate(names):
            (place := directory / str(number)).mkdir(parents=True)
            calls[name] = await stack.enter_async_context(CONTENDERS[name](place))
        missing: dict[str, int] = {}
        for name, call in calls.items():
            first = [await _seconds(call, n) for n in range(5)]
            missing[name] = sizes.calls // (10 if statistics.median(first) > SLOW_SECONDS else 1)
        order = random.Random(1)  # so that none always follows the same one
        while waiting := [name for name, count in missing.items() if count > 0]:
            for name in order.sample(waiting, len(waiting)):
                for n in range(min(ROUND_CALLS, missing[name])):
                    seconds[name].append(await _seconds(calls[name], n))
                missing[name] -= ROUND_CALLS
    return seconds


async def _rate(call: Callable[[int], Awaitable[object]], in_flight: int, seconds: float) -> float:
    """Return the calls a second with so many at once."""
    count = 0
    began = time.perf_counter()

    async def repeat() -> None:
        nonlocal count
        while time.perf_counter() - began < seconds:
            await call(count)
            count += 1

    await asyncio.gather(*(repeat() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def rates(directory: Path, sizes: Sizes) -> Figures:
    """Calls a second, 32 in flight in one session, beside FastMCP over stdio; three rounds of each."""
    ours: list[float] = []
    theirs: list[float] = []
    with served(directory) as path:
        async with (
            connect(path, directory=directory / "project", daemon="running") as session,
            mcp_client(FASTMCP) as client,
        ):

            async def fastmcp(n: int) -> object:
                return await client.call_tool("add", {"a": n, "b": 1})

            for _ in range(3):
                ours.append(await _rate(toolcell_call(session), IN_FLIGHT, sizes.seconds))
                theirs.append(await _rate(fastmcp, IN_FLIGHT, sizes.seconds))
    return {"rate_fastmcp": statistics.median(ours) / statistics.median(theirs)}


async def first_calls(directory: Path, sizes: Sizes) -> Figures:
    """The call for which a worker is started, in a cell that was made ahead."""
    with served(directory) as path:
        project = directory / "project"
        names = [f"f{n}" for n in range(sizes.new_workers)]
        for name in names:
            (project / ".toolcell" / "tools" / f"{name}.py").write_text(TOOLS.format(options="", name=name))
        seconds: list[float] = []
        async with connect(path, directory=project, daemon="running") as session:
            while any(name not in session.catalog.tools for name in names):
                await session.reload()
            for name in names:
                await asyncio.sleep(PAUSE_SECONDS)
                seconds.append(await _seconds(toolcell_call(session, name), 1))
    first = statistics.median(seconds)
    pythons = [_run_seconds([sys.executable, "-c", WITH_PYDANTIC]) for _ in seconds]
    return {"first": first * 1000, "first_python": first / statistics.median(pythons)}


async def fresh_processes(directory: Path, sizes: Sizes) -> Figures:
    """`isolation="call"`: ten calls a second in turn with those of a warm worker, and as many as go, four at once."""
    seconds: dict[str, list[float]] = {"add": [], "fresh": []}
    with served(directory) as path:
        project = directory / "project"
        options = '(isolation="call")'
        (project / ".toolcell" / "tools" / "fresh.py").write_text(TOOLS.format(options=options, name="fresh"))
        async with connect(path, directory=project, daemon="running") as session:
            for n in range(sizes.paced):
                for name, taken in seconds.items():
                    taken.append(await _seconds(toolcell_call(session, name), n))
                    await asyncio.sleep(max(0.0, PACE_SECONDS / len(seconds) - taken[-1]))
            rate = await _rate(toolcell_call(session, "fresh"), 4, sizes.seconds)
    warm, fresh = (statistics.median(taken[1:]) for taken in seconds.values())
    return {"fresh_paced": fresh / warm, "fresh_rate": rate}


async def starts(directory: Path, sizes: Sizes) -> Figures:
    """From the start of a daemon to the first result, beside FastMCP over stdio with the same client as ever."""
    ours: list[float] = []
    theirs: list[float] = []
    for n in range(sizes.starts + 1):  # the first ones compile
        began = time.perf_counter()
        with served(directory / str(n)) as path:
            async with connect(path, directory=directory / str(n) / "project", daemon="running") as session:
                await toolcell_call(session)(n)
                ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        async with mcp_client(FASTMCP) as client:
            await client.call_tool("add", {"a": n, "b": 1})
            theirs.append(time.perf_counter() - began)
    return {"start_fastmcp": statistics.median(ours[1:]) / statistics.median(theirs[1:])}


async def commands(directory: Path, sizes: Sizes) -> Figures:
    """The command as a whole process: a call on a running daemon, and its help, beside a Python that does nothing."""
    seconds: dict[str, list[float]] = {"command": [], "help": [], "nothing": []}
    toolcell = str(Path(sys.executable).with_name("toolcell"))
    with served(directory) as path:
        call = ["call", "--socket", path, "-C", str(directory / "project"), "add", "a:=1", "b:=2"]
        programs = [toolcell, *call], [toolcell, "--help"], [sys.executable, "-c", "pass"]
        for n in range(2 * sizes.starts + 1):
            for taken, program in zip(seconds.values(), programs, strict=True):
                took = _run_seconds(program)
                if n:
                    taken.append(took)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {
        "command": medians["command"] * 1000,
        "help": medians["help"] * 1000,
        "command_python": medians["command"] / medians["nothing"],
    }


def _run_seconds(program: Sequence[str]) -> float:
    """Run a program to its end, and return how long it took."""
    began = time.perf_counter()
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, env=environment())
    return time.perf_counter() - began


async def memory(directory: Path, sizes: Sizes) -> Figures:
    """The proportional memory of the processes of a strict cell, whose worker is idle, beside others like it."""
    with served(directory) as path:
        project = directory / "project"
        names = [f"m{n}" for n in range(sizes.cells)]
        for name in names:
            (project / ".toolcell" / "tools" / f"{name}.py").write_text(TOOLS.format(options="", name=name))
        async with (
            connect(path, directory=project, daemon="running") as session,
            operate(Running(path)) as operator,
        ):
            while any(name not in session.catalog.tools for name in names):
                await session.reload()
            for name in names:
                await toolcell_call(session, name)(1)
            await asyncio.sleep(4 * PAUSE_SECONDS)
            answer = await operator.ask(operator.operator.ListWorkers, operator_pb2.ListWorkersRequest())
            sums = [sum(_pss_bytes(pid) for pid in _tree(worker.keeper_pid)) for worker in answer.workers]
    return {"memory": statistics.mean(sums) / 1e6}


def _tree(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(child) for child in file.read().split()]
    return [pid, *(each for child in children for each in _tree(child))]


def _pss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024


async def engines(directory: Path, sizes: Sizes) -> Figures:
    """Tools in TypeScript, by engine and sandbox: first calls, the memory of a worker, warm calls beside those in Python."""
    figures: Figures = {}
    for engine, program in ENGINES.items():
        if not program.exists():
            sys.exit(f"{engine} is not there. To install it: make engines")
        for sandbox in ("strict", "baseline"):
            rules = f'[defaults]\nsandbox = "{sandbox}"\n'
            place = directory / f"{engine}-{sandbox}"
            names = [f"e{n}" for n in range(sizes.new_workers)]
            with served(place, rules, f"{program.parent}:{os.defpath}") as path:
                for name in names:
                    (place / "project" / ".toolcell" / "tools" / f"{name}.ts").write_text(SCRIPT)
                found = await _of_engine(path, place / "project", names, sizes)
            figures |= {f"{figure}_{engine}_{sandbox}": value for figure, value in found.items()}
    return figures


async def _of_engine(path: str, project: Path, names: list[str], sizes: Sizes) -> Figures:
    async with (
        connect(path, directory=project, daemon="running") as session,
        operate(Running(path)) as operator,
    ):
        await session.described(DESCRIBE_SECONDS_MAX)
        first: list[float] = []
        memory_bytes = 0
        for name in names:
            await asyncio.sleep(PAUSE_SECONDS)
            first.append(await _seconds(toolcell_call(session, name), 1))
            if not memory_bytes:  # others share its pages
                await asyncio.sleep(4 * PAUSE_SECONDS)
                answer = await operator.ask(operator.operator.ListWorkers, operator_pb2.ListWorkersRequest())
                memory_bytes = sum(map(_pss_bytes, _tree(answer.workers[0].keeper_pid)))
        calls = {"script": toolcell_call(session, names[0]), "python": toolcell_call(session)}
        warm: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(1 + sizes.calls // ROUND_CALLS):
            for name, call in calls.items():
                warm[name] += [await _seconds(call, n) for n in range(ROUND_CALLS)]
    medians = {name: statistics.median(taken[ROUND_CALLS:]) for name, taken in warm.items()}
    return {
        "first": statistics.median(first) * 1000,
        "warm": medians["script"] / medians["python"],
        "memory": memory_bytes / 1e6,
    }


async def large_results(directory: Path, sizes: Sizes) -> Figures:
    """A result of a megabyte, of which the model reads 50 kB and the rest is kept, in turn with FastMCP's, sent whole."""
    ours: list[float] = []
    theirs: list[float] = []
    with served(directory) as path:
        async with (
            connect(path, directory=directory / "project", daemon="running") as session,
            mcp_client(FASTMCP) as client,
        ):
            for _ in range(sizes.large):
                began = time.perf_counter()
                outcome = await session.call("large", {"size": LARGE_BYTES})
                ours.append(time.perf_counter() - began)
                assert outcome.output is not None, outcome
                assert outcome.output.bytes == LARGE_BYTES, outcome
                began = time.perf_counter()
                result = await client.call_tool("large", {"size": LARGE_BYTES})
                theirs.append(time.perf_counter() - began)
                assert len(result.content[0].text) == LARGE_BYTES
    return {"large_fastmcp": statistics.median(ours) / statistics.median(theirs)}


async def processor_time(directory: Path, sizes: Sizes) -> Figures:
    """The processor time of one warm call, of the client, the daemon and the worker; main threads and gRPC's apart."""
    with served(directory) as path:
        async with (
            connect(path, directory=directory / "project", daemon="running") as session,
            operate(Running(path)) as operator,
        ):
            call = toolcell_call(session)
            for n in range(ROUND_CALLS):
                await call(n)
            status = await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
            answer = await operator.ask(operator.operator.ListWorkers, operator_pb2.ListWorkersRequest())
            pids = {"client": os.getpid(), "daemon": status.pid, "worker": answer.workers[0].pid}
            before = {name: _thread_seconds(pid) for name, pid in pids.items()}
            for n in range(sizes.calls):
                await call(n)
            after = {name: _thread_seconds(pid) for name, pid in pids.items()}
    figures: Figures = {}
    for name in pids:
        main, others = ((after[name][part] - before[name][part]) / sizes.calls * 1e6 for part in (0, 1))
        figures |= {f"{name}, main thread": main} | (
            {} if name == "worker" else {f"{name}, threads of gRPC": others}
        )
    return figures


async def adopted(_directory: Path, sizes: Sizes) -> Figures:
    """MCP servers through the daemon beside the same ones without it: warm calls in turn, and the memory of ten sessions."""
    async with adopted_servers(sizes.servers) as (daemon, servers):
        async with daemon.connect() as session:
            ratios: Figures = {}
            for server in servers.servers:
                through, python, directly = await servers.seconds(session, server, sizes.rounds)
                ratios[f"{ADOPTED}{server.name}"] = (through - python) / directly
        ours = await servers.bytes_through_bridges(sizes.sessions)
        return {
            **ratios,
            "adopted_call": max(ratios.values()),
            "adopted_memory": ours / servers.bytes_of_hosts(sizes.sessions),
        }


async def placed(directory: Path, sizes: Sizes) -> Figures:
    """A session on a node of a cluster, over TLS, in turn with one on the unix socket of the same daemon."""
    return await placed_calls(directory, 2 * sizes.calls, sizes.paced, ROUND_CALLS)


async def doors(directory: Path, _sizes: Sizes) -> Figures:
    """What a warm call enters in the daemon: a count, the same in every run."""
    figures = (await road(directory)).figures()
    return {"doors_entries": figures["entries"], "doors_modules": figures["modules"]}


async def waiting_calls(_directory: Path, _sizes: Sizes) -> Figures:
    """How many functions run in the pool when a call ends while others wait: a count, the same in every run."""
    from tests.daemon.pool.test_pool import FakeWorker, steps_of_an_event  # with what is for tests alone

    FakeWorker.born = []
    return {f"waiting_{n}": await steps_of_an_event(FakeWorker.born, n, 1) for n in WAITING}


def _thread_seconds(pid: int) -> tuple[float, float]:
    """Return the processor time of the main thread, and of all others together."""
    used: dict[int, float] = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            used[int(thread)] = int(file.read().split()[0]) / 1e9
    main = used.pop(pid)
    return main, sum(used.values())


MEASURES: Final[Mapping[str, Callable[[Path, Sizes], Awaitable[Figures]]]] = {
    "rates": rates,
    "first": first_calls,
    "fresh": fresh_processes,
    "starts": starts,
    "commands": commands,
    "memory": memory,
    "engines": engines,
    "large": large_results,
    "waiting": waiting_calls,
    "processor": processor_time,
    "doors": doors,
    "placed": placed,
    "adopted": adopted,
}
